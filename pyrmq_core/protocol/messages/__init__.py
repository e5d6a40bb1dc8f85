"""Messages and their bytes.

    payload          `Payload`, the content of a send request, `RawPull`, the answer to a pull, and the check of a
                     message before it is sent
    split_payload    a refused batch divided in halves, and a message prepared for another topic
    record           the stored record of a message, in a commit log and in a pull's answer
    batch            the body of a batch: several messages in one request
    batch_payloads   the division of messages into batches, one for each send request
    batch_topic      5.x topics whose brokers store a batch as one record
    bodies           stored bodies: the check of their CRC, and their decompression
    completeness     the check that the answer to a pull has every requested message
    compression      zlib, LZ4 and Zstandard
    properties       the properties string, and the properties that a message is sent with
    message_id       UNIQ_KEY and offset message id
    names            rules for the names of topics and groups
    namespaces       topics and groups of a tenant, `NS%topic`
    queue_tables     message queues in JSON, and JSON objects with queues as keys
    sysflag          the bits of a message's sysFlag
    trace            trace records, as Java's console reads them
    trace_events     the parser of trace records
    lite_topics      the queues of lite topics (5.5)
    readable         the reading of records one at a time, for tools
    unread_message   messages whose records are parsed on first use

Read `record` and `batch` for the formats, and `payload` for the functions that use them.
"""
