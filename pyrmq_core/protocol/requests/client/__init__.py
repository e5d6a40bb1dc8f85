"""Requests that a broker sends to a client, one module for each."""
