"""The thread of the library's trio loop, which runs the calls of `blocking` and `aio`.

`portal` starts the thread, takes calls from other threads, and keeps clients open on the loop. `threads` has a lock
with which a calling thread uses the loop's state while the loop waits.
"""
