"""Requests that a NameServer answers, one module for each."""
