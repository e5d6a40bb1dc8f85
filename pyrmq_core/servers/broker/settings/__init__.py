"""A broker's settings: `broker_config` has those with an effect, `setting_rules` what happens to RocketMQ's others.

`setting_values` reads and writes their texts, and bounds their numbers.
"""
