"""Pulled records to Arrow columns."""
