"""Spark's side: its pure parts, and jobs in a session."""
