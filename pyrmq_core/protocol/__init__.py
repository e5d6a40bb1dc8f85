"""RocketMQ's remoting protocol as bytes and values: no sockets, no clock, no loop.

`frame` and `headers` turn bytes into `Command`s and back, `fields` maps a conversation's dataclass to header fields,
`requests/` holds one file a conversation. `record`, `properties`, `batch`, `compression` and `message_id` are the
message formats; `payload` joins them into what `Sender` sends (`Payload`) and `Puller` pulls (`RawPull`).
"""
