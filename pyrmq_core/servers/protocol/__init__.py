"""Formats and conversations between servers alone: registrations and heartbeats of brokers, pure like `protocol`."""
