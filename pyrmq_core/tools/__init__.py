"""Tools for people: the command `pyrmq`, the web page, searches in messages, and Airflow's trigger.

Tools use the client by its public names. The commands that start servers are in `cli/operation` and `cli/serving`.
"""
