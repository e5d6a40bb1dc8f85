"""The commands with which a cluster is operated: brokers, NameServers, their health and their load."""
