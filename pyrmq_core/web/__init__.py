"""The page in the browser: what RocketMQ's Dashboard shows, rendered on this machine (extra `[web]`).

`server` listens and serves, `application` has the table of paths, `guards` refuses what a browser must not be made to
do. `guards`, `bodies` and `look_up_queue` keep slow and greedy peers from harming others, `shared_answers` bounds what
brokers are asked, `pages` has the pages. Pages are made from templates here, so that they work without a script; the
scripts in `static` renew them and draw curves. Everything that a broker answers is escaped by the templates.
"""
