"""Consuming by pop: single messages with a receipt and an invisible time, for any number of workers."""
