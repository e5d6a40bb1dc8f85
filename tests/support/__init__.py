"""The shared parts of tests and benchmarks: real servers, and fakes that record."""
