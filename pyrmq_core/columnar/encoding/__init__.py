"""Rows to the payloads of send requests: `encode` is the entry, and cuts rows into requests.

`sink_rows` and `user_properties` are the rows in known Arrow types, `validate` finds faults in them, `group_by` divides
them. `row_parts` and `content_ids` make the parts of a row's bytes, and `row_parts` joins them.
"""
