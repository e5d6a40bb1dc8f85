"""The clients connected to a broker: their groups, the queues they lock, the pulls they have waiting."""
