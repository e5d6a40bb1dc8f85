"""RocketMQ's remoting protocol as bytes and values: no sockets, no clock, no loop.

`frame` and `headers` turn bytes into `Command`s and back, `fields` maps a conversation's dataclass to header fields,
`requests/` holds one file a conversation. `record`, `properties`, `batch`, `compression` and `message_id` are the
message formats; `payload` joins them into what `Sender` sends (`Payload`) and `Puller` pulls (`RawPull`). `names` has
the rules a message must keep, `java_hash`, `java_json` and `java_properties` are Java's habits, `acl` signs.

Text that comes from outside is read as Java reads it: what is not UTF-8 becomes U+FFFD and never raises. Whatever else
is wrong in bytes from outside is one of the errors under `ProtocolError`; no length is believed before it is checked.
"""
