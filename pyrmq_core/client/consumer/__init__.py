"""Consumers: reading at offsets, by polls, and with a handler of messages.

pull_consumer         `PullConsumer` reads queues at offsets, and `queue_offsets` queries brokers for offsets
lite_pull_consumer    `LitePullConsumer` is polled, and `running_lite_pull` has its parts while it runs
push_consumer         `PushConsumer` calls a handler, and `running_push` has its parts while it runs
pop_consumer          `PopConsumer` takes single messages, each invisible to others for a time, and `pop` has its parts
pull                  pull requests to brokers, single ones and for ranges of offsets
rebalance             the division of queues among the members of a group
consume               the path of messages from a pull to a handler or a poll
offsets               the consumed offset of each queue, kept in memory and at the broker or in a file
group                 subscriptions and membership
"""
