"""Tests against Apache RocketMQ's own servers, clients and tools."""
