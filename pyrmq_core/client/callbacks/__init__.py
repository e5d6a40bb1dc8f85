"""Requests that brokers send to a client: replies to requests, and checks of transactions."""
