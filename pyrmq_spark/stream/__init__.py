"""Streaming reads of topics.

`stream_reader` is Spark's reader, `stream_offset` the offsets of a query, `latest_offsets` the queues and their ends,
`progress` lag and published offsets. `lag_listener` and `lineage_listener` report on all queries of a session.
"""
