"""The requests of consumers that pop: pops, acknowledgements, waits without a pop, and the modes of groups."""
