"""Consumers, which read queues at given offsets, are polled for messages, or call a handler with them.

pull_consumer         `PullConsumer` reads queues at given offsets, and `queue_offsets` queries brokers for offsets
lite_pull_consumer    `LitePullConsumer` is polled for messages, and `running_lite_pull` does its work
push_consumer         `PushConsumer` calls a handler with messages, and `running_push` does its work
pop_consumer          `PopConsumer` takes single messages, each invisible to others for a time, and `pop` does its work
pull                  pull requests to brokers, single ones and for ranges of offsets
rebalance             the division of queues among the members of a group
consume               the path of messages from a pull to a handler or a poll
offsets               the consumed offset of each queue, kept in memory and at the broker or in a file
group                 subscriptions and membership
"""
