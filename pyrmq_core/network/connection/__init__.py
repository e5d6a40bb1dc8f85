"""One connection: `connection` joins `wire` (bytes), `outbox` (frames to write), `calls` and `answers`.

`peer` describes the other end to handlers. `stall_detector` finds connections that hang. `shared_bytes` limits the
memory of all connections together.
"""
