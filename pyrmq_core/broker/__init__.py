"""A broker that carries the job for real: it stores messages in RocketMQ's own files, and answers pulls from them.

Left out: slaves and replication, transactions, timer messages, SQL filters, batch topics (`queue.type=BatchCQ`), the key
index (QUERY_MESSAGE), removal of old segments, access control, TLS, static topics, pop consumption. Each is refused by
name.
"""
