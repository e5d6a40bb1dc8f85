"""The broker's statistics: what was stored and pulled, by topic and group, in the last seconds, minute, hour and day.

Each request only adds to a few counters. Rates are computed from samples when a tool queries them.
"""
