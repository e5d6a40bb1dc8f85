"""The client against its own rules, scripted servers and brokers in memory."""
