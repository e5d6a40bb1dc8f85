"""The exporter of a server's metrics to Prometheus (extra `metrics`).

The server describes its metrics as plain values (`families`), `page` formats them as text, and `server` serves the text
over HTTP.
"""
