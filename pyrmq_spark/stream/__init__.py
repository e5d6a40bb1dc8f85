"""Streaming reads: offsets of a query, the latest offsets of queues, progress and lag."""
