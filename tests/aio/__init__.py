"""The client for asyncio: calls, cancelling, several loops, and handlers on the user's loop."""
