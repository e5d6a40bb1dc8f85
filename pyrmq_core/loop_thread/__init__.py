"""The thread of the library's trio loop, on which the faces for threads and for asyncio both stand.

portal       the loop's thread, the calls of other threads to it, and contexts that stay open on it
loop_lock    the lock by which a calling thread uses the loop's state while the loop waits
"""
