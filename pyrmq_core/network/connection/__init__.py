"""One connection: `connection` joins `wire` (bytes), `outbox` (frames to write), `calls` and `answers`.

`peer` is the other end as handlers see it; `deadline_sweeper` ends overdue calls, `stall_detector` finds connections
that hang, `shared_bytes` bounds the memory of all, `turn` shares the event loop, and `failures` names the reasons.
"""
