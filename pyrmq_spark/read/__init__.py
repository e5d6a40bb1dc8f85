"""Reads in batch: queue selection on the driver, ranges planned for tasks, one task's range read to Arrow."""
