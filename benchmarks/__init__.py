"""Benchmarks: each module here but `__main__` measures one thing, by its `main(quick)`."""
