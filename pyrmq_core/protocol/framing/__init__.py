"""Frames and their headers, as values and as bytes.

Read `command` first, then `frame`:

    codes              request and response codes by their RocketMQ names
    command            `Command`: one request or response as a value
    frame              frames as bytes, and `FrameDecoder`, which finds them in a stream
    headers            the two encodings of a header, JSON and ROCKETMQ
    fields             a dataclass to header fields and back
    header_requests    requests and responses that have only header fields, and the error for a refusal
    fast_dataclass     a fast constructor for frozen dataclasses
    lent_answer        answers whose bodies are views of the receive buffer
    remedies           advice at the end of error messages
    versions           version numbers, and the requests that each version supports

No module here knows a particular request: those are in `requests`.
"""
