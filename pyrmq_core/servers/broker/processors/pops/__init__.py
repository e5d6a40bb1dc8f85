"""The requests of consumers that pop: pops, what ends them, waits without a pop, and the modes of groups."""
