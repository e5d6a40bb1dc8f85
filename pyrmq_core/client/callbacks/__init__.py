"""The handlers of requests that brokers send to a client.

    replies               replies to request messages, passed to the tasks that wait for them
    consumer_requests     requests to the consumers of groups, passed to the consumer of their group
    transaction_checks    checks of half messages, passed to the producer of their group

Producers and members of groups have the client make those that they need (`ClientSession.callbacks`).
"""
