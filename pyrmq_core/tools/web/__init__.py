"""The web page: the contents of RocketMQ's Dashboard, rendered by this process (extra `[web]`).

`guards` refuses forged requests. `guards`, `bodies` and `look_up_queue` keep a slow or greedy client from harming
others, and `shared_answers` limits the queries to brokers. Pages are rendered on the server, so that they work without
JavaScript. The templates escape all values from brokers.
"""
