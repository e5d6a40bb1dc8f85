"""What the benchmarks share: the raw road beside which ours is measured, and paired runs."""
