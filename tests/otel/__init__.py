"""Metrics and traces through OpenTelemetry, and what the servers and boards show."""
