"""Rebalancing: decides which queues of a topic each member of a group reads.

strategies    Java's six strategies, as pure functions of queues and client ids, and Java's order of both
rebalancer    applies a strategy whenever members or routes change, or keeps the queues that a user assigned
"""
