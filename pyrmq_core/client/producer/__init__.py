"""The producer: its public class and settings, transactions, request-reply and message trace.

`send` makes one send, and `bulk` many at once.
"""
