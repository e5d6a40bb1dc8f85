"""Tests, from plain values at the bottom to Apache RocketMQ itself at the top (`interop`)."""
