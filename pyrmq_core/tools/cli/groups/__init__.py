"""The commands about consumer groups, their messages and their clients: `group`, `query`, `dlq` and `clients`.

    group          the commands of `pyrmq group`, and `pyrmq clients`
    rows           the rows of their tables, for people and for programs
    messages       `pyrmq query` and `pyrmq dlq`

Brokers that did not answer are printed below a table, or with `--json` on standard error.
"""
