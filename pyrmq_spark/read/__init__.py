"""Batch reads, from queues to rows.

`queue_selection` queries brokers on the driver, `range_planner` cuts ranges for tasks, `partition_reader` reads one
task's ranges, `ranges_decoding` makes batches of them, `columns` is the schema.
"""
