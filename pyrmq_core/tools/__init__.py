"""Tools for people: the command `pyrmq`, the web page, the search for messages by content, and Airflow's trigger.

The commands that start servers are in `cli/operation` and `cli/serving`.
"""
