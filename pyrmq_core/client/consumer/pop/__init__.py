"""Consuming by pop: any number of workers take single messages, each with a receipt and an invisible time."""
