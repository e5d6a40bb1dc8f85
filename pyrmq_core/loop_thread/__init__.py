"""The thread of the library's trio loop, on which the faces for threads and for asyncio both stand.

`portal` has the loop's thread, the calls of other threads to it, the lock by which a calling thread uses the loop's
state while the loop waits, and contexts that stay open on the loop.
"""
