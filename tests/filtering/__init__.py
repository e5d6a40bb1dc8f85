"""Tag expressions and SQL."""
