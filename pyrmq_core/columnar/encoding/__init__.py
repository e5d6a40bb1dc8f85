"""Rows to the payloads of send requests: `encode` is the entry, `encode_by_row` its loop over messages.

`sink_rows` and `user_properties` are the rows in known Arrow types, `validate` finds faults in them, `group_by` divides
them. `batch_limit` cuts them into requests; `properties`, `unique_ids` and `content_ids` make the parts that `concat`
joins.
"""
