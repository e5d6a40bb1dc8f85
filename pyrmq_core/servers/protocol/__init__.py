"""Requests and bodies that only servers exchange: registrations and heartbeats of brokers. They use no sockets."""
