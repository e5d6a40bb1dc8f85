"""Searching: conditions on messages, and the search that reads ranges by them."""
