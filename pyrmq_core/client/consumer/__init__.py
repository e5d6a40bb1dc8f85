"""Consumers: reading by offset, by poll, and as a handler of messages.

pull_consumer         the face that reads queues at offsets, and `queue_offsets` queries brokers for offsets
lite_pull_consumer    the face that is polled, and `running_lite_pull` has its parts at work
push_consumer         the face that calls a handler, and `running_push` has its parts at work
pull                  the requests that bring messages
rebalance             the division of queues among the members of a group
consume               messages on their way from a pull to a handler or a poll
offsets               how far a group's queues are consumed, and the store of that
group                 subscriptions and membership
"""
