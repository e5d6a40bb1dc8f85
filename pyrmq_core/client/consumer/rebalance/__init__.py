"""Rebalancing: which queues of a topic each member of a group reads. The strategies are pure functions of two lists.

strategies    Java's six strategies, and the order of queues and client ids on which all members agree
rebalancer    applies a strategy whenever members or routes change, or keeps the queues that a user assigned
"""
