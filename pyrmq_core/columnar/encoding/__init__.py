"""Encodes rows as the bodies of send requests (payloads). `encode` has the entry points, and divides rows.

`sink_rows` and `user_properties` cast rows to a few Arrow types. `validate` finds faults in rows. `group_by` divides
them by topic, queue and tag. `row_parts` joins the bytes of each row from its parts. `content_ids` makes message ids
from the content of rows.
"""
