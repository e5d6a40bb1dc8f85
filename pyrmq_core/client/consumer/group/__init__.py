"""A consumer's membership in its group: subscriptions, heartbeats, and the requests that brokers send to members."""
