"""Deterministic simulation: clients, brokers and NameServers of ours on a virtual clock and network, from a seed."""
