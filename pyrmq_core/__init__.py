"""RocketMQ for Python on trio: the client core, and a NameServer and broker to go with it."""
