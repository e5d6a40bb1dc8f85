"""The page in the browser: the contents of RocketMQ's Dashboard, rendered on this machine (extra `[web]`).

`guards` refuses requests that other sites make a browser send. `guards`, `bodies` and `look_up_queue` keep slow and
greedy peers from harming others, and `shared_answers` limits the queries to brokers. The pages are made from templates
here, so that they work without a script. The templates escape all values from brokers.
"""
