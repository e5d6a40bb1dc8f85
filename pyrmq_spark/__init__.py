"""RocketMQ as a Spark data source, over the client core in `pyrmq_core`."""
