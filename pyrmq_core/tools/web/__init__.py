"""The page in the browser: the contents of RocketMQ's Dashboard, rendered on this machine (extra `[web]`).

`server` listens and serves, `application` has the table of paths, `guards` refuses requests that other sites make a
browser send. `guards`, `bodies` and `look_up_queue` keep slow and greedy peers from harming others, `shared_answers`
limits the queries to brokers, `pages` has the pages. Pages are made from templates here, so that they work without a
script; the scripts in `static` renew them and draw curves. The templates escape all values from brokers.
"""
