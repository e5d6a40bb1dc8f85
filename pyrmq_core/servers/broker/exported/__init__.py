"""The broker's metrics for Prometheus, with the names and labels of RocketMQ 5.x."""
