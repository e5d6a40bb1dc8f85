"""One connection, and the limits that many connections share.

`connection` uses `wire` (its byte stream), `outbox` (frames to write), `calls` (its own requests) and `answers` (to the
other end's requests). `peer` describes the other end to handlers. `stall_detector` finds connections that hang, and
`shared_bytes` limits the memory of all connections together.
"""
