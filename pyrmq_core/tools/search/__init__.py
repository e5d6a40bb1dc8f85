"""Searching in messages: ranges of a topic by time, conditions, and the search for messages that meet them.

`pyrmq search` and the web page use it. It prints nothing and queries brokers only through a `PullConsumer`.
"""
