"""Requests of administrators about groups, which a broker answers.

    subscription_groups    groups and their settings: created, changed, listed and deleted (200, 201, 207)
    connections            the clients of consumer and producer groups (203, 204, 328)
    consume_stats          the progress of consumer groups (208, 303, 317)

Requests that change the offsets of groups are in `broker/consumer_admin.py` and `broker/group_admin.py`.
"""
