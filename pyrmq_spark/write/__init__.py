"""Writes, batch and streaming: writers on the driver, one task's write, queues, dead letters and delays of rows."""
