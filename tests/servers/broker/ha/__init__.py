"""A master and its slaves."""
