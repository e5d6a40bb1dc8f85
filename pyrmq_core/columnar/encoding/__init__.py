"""Rows of Arrow columns to the payloads of send requests."""
