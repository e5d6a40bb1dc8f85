"""Requests that a broker answers, one module for each."""
