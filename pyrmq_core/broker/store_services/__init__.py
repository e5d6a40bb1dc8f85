"""Background work on the store: flushing it to the disk."""
