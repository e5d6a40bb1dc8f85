"""Batch reads, from queues to rows.

`queue_selection` queries brokers on the driver, `range_planner` divides offsets into ranges for tasks,
`partition_reader` reads one task's ranges, `ranges_decoding` decodes them to batches, `columns` has the schema.
"""
