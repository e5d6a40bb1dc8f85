"""The client for threads: calls, many threads, forks, and the end of the interpreter."""
