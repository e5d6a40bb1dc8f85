"""The thread of the library's trio loop, which runs the calls of `blocking` and `aio`.

`portal` starts the thread, runs calls of other threads on the loop, and keeps clients open there. It has a lock with
which another thread uses the loop's state while the loop waits for I/O. `loop_errors` has the errors of its start and
end.
"""
