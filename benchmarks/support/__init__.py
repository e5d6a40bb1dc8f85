"""Parts shared by the benchmarks: the raw path beside which ours is measured, and paired runs."""
