"""The pictures that compare pyrmq with others, drawn from stored figures: `python -m benchmarks.pictures`."""
