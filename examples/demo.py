"""`make demo`: shows what works so far."""

from importlib.metadata import version

import pyrmq_core

print(f"pyrmq-spark {version('pyrmq-spark')}: {pyrmq_core.__doc__}")
print("So far it speaks RocketMQ's wire format; sending and reading follow.")
