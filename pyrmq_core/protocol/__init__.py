"""RocketMQ's remoting protocol as bytes and values: no sockets, no clock, no event loop.

    framing     frames and headers: bytes to `Command`s and back, request and response codes, typed header fields
    requests    one file for each request and its response: both as values, and as commands
    messages    message formats (record, batch, properties, compression, ids), names, `Payload`, the content of a
                send request, and `RawPull`, the answer to a pull
    routes      topic routes and topic configurations as JSON
    java        Java's text and number formats, which the other folders use
    acl         signatures of requests

`shown_values` is the text of wrong values in error messages.

A length in received bytes is checked before it is used, and wrong bytes raise a subclass of `ProtocolError`. Topics and
properties in records are read as Java reads them: bytes that are not UTF-8 become U+FFFD and never raise. Headers and
JSON bodies have to be UTF-8.

Fast forms
----------

Code that runs once for each message exists twice. The plain form handles every case and defines the result, so read it
first. The fast form handles only the usual case, by a template or a regular expression. It leaves any other case to
the plain form.

    plain form                                       fast form
    framing/headers: `decode_json`                   `_LAZY_*` patterns and `LazyFields`: custom fields stay unparsed
    framing/frame: `Command` and `encode_json`       `RequestForm`: a header template with a few varying fields
    requests/broker/send_message: `decode_fields`    `_USUAL`: the usual answer to a send
    requests/broker/pull_message: `PullAnswer`       `pull_offsets`: only the three offsets of an answer
    messages/properties: `message_properties`        `plain_ends`: no delay, priority or lite topic
    a frozen dataclass's constructor                 `framing/fast_dataclass.maker_of`: fills all slots, by position

`columnar/` is the fast form of encoding and decoding whole batches of messages.
"""
