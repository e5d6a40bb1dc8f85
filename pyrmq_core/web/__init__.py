"""The page in the browser: what RocketMQ's Dashboard shows, rendered on this machine (extra `[web]`).

`server` listens and serves, `application` has the table of paths, `guards` refuses what a browser must not be made to
do, `bodies`, `fair_places` and `fair_turns` keep slow and greedy peers from harming others, `shared_answers` bounds
what brokers are asked, `pages` has one module a page. Pages are made from templates here, so that they work without a
script; the scripts in `static` renew them and draw curves. Everything that a broker answers is escaped by the
templates.
"""
