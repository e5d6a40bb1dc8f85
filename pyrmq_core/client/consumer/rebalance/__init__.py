"""Rebalancing: decides which queues of a topic each member of a group reads.

strategies    Java's six strategies, pure functions of queues and client ids, and the order in which members sort both
rebalancer    applies a strategy whenever members or routes change, or keeps the queues that a user assigned
"""
