"""What tests and benchmarks share: the real servers, and fakes that record."""
