"""Searching in messages: the ranges of a topic by time, the conditions, and the search that reads one by the other.

`pyrmq search` and the page in the browser stand on it. It prints nothing and queries brokers only through a
`PullConsumer`.
"""
