"""The producer: its public class and settings, transactions, request-reply and message trace.

The package `send` sends one message or request, and the package `bulk` sends many messages concurrently.
"""
