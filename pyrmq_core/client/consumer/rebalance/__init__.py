"""Rebalancing: which queues of a topic each member of a group reads. The strategies are pure functions of two lists.

java_order            the order of queues and client ids, on which all members agree
strategy              `AllocateMessageQueueStrategy`, and the checks of its arguments
averages              AVG and AVG_BY_CIRCLE
by_config             CONFIG
machine_rooms         MACHINE_ROOM and MACHINE_ROOM_NEARBY
consistent_hash       CONSISTENT_HASH
rebalancer            applies a strategy whenever members or routes change
fixed_queues          the queues that a user assigned, in place of a rebalancer
"""
