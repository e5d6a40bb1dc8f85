"""Requests and bodies that only servers exchange: registrations and heartbeats of brokers. Pure, like `protocol`."""
