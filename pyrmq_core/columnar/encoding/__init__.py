"""Encodes rows to the payloads of send requests: `encode` has the entry points, and divides rows into requests.

`sink_rows` and `user_properties` have the rows in known Arrow types, `validate` finds faults in them, and `group_by`
divides them by topic, queue and tag. `row_parts` makes and joins the parts of a row's bytes. `content_ids` makes
ids from the content of rows.
"""
