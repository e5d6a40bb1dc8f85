"""The tools' wing, which is for people: the command, the page in the browser, searches in messages, Airflow's trigger.

Tools use the client by its public names. The commands that start servers are in `cli/operation` and `cli/serving`.
"""
