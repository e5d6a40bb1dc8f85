"""A broker's settings: `broker_config` has those with an effect, `setting_rules` the refused and the ignored ones.

`setting_values` parses and formats values, and limits numbers.
"""
