"""Serves a server's metrics to Prometheus (extra `metrics`).

A server yields `families`, which are plain values. `page` formats them, and `server` serves the page.
"""
