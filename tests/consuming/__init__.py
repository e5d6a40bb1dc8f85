"""Consumers of groups: parts by themselves, over our own cluster, and beside faults."""
