"""The producer: its public class and settings, transactions, request-reply and message trace.

`send` is the path of one send, `bulk` of many at once.
"""
