"""The requests of consumers that pop: pops, acknowledgements, notifications, and the choice between pull and pop."""
