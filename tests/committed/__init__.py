"""Committed delivery: the records of manifests, and which of them count."""
