"""Consumers: `pull_consumer` is the public face, `queue_offsets` queries brokers for offsets, `pull` reads messages."""
