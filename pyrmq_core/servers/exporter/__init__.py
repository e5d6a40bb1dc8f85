"""A server's figures as a page that Prometheus reads (extra `metrics`).

`families` are plain values, which a server yields. `page` makes Prometheus' text of them, and `server` serves it.
"""
