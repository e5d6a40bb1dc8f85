"""The web page: the contents of RocketMQ's Dashboard, rendered by this process (extra `[web]`).

`guards` refuses forged requests. `guards`, `bodies` and `look_up_queue` keep a slow or greedy client from harming
others, and `shared_answers` limits the queries to brokers. The pages are rendered from templates here, so that they
work without a script. The templates escape all values from brokers.
"""
