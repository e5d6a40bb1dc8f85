"""`Admin` and its families on our own cluster; `tests/interop` runs the same promises on RocketMQ."""
