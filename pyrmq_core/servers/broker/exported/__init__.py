"""The broker's figures for Prometheus, under the names and labels of RocketMQ 5.x."""
