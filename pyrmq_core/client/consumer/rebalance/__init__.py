"""Rebalancing: which queues of a topic each member of a group reads.

strategies    Java's six strategies, pure functions of queues and client ids, and the order on which all members agree
rebalancer    applies a strategy whenever members or routes change, or keeps the queues that a user assigned
"""
