"""The thread of the library's trio loop, which the faces for threads and for asyncio both use.

`portal` has the loop's thread, and other threads' calls on the loop. A lock lets a calling thread use the loop's state
while the loop waits. Contexts can stay open on the loop.
"""
