"""Many sends at once: send windows, automatic batching, batches split by size, whole Arrow tables."""
