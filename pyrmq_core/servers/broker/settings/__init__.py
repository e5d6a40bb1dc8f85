"""A broker's settings: `broker_config` has those with an effect, `setting_rules` the reasons to refuse or ignore
others.

`setting_values` parses and formats values, and limits numbers.
"""
