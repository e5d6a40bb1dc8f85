"""Real databases, the tools that capture their changes, and the tables that Spark makes of them."""
