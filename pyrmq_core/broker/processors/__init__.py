"""Processors of requests, one module a family (`broker/processor/*.java`); `table` maps request codes to them."""
