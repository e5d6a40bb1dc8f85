"""A broker's settings: `broker_config` has those that it knows, `setting_rules` what becomes of RocketMQ's others.

`setting_values` reads and writes their texts, and bounds their numbers.
"""
