"""The broker's figures: what was stored and pulled, by topic and group, in the last seconds, minute, hour and day.

Counting is a few additions for a request. Rates are computed from samples when a tool queries them.
"""
