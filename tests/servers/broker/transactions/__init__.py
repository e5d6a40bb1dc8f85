"""Tests of transactions in the broker."""
