"""The consumed offset of each queue: where reading starts, how it advances, and where it is stored."""
