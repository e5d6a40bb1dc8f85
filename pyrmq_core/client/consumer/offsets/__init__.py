"""The offsets of a group's queues: where reading starts, how far messages are consumed, and where this is stored."""
