"""Requests that a broker sends to a client, over a connection that the client opened.

    check_transaction_state        the query for the state of a half message's transaction (39)
    push_reply                     the reply to a request message (326)
    notify_consumer_ids_changed    the notice that a group's members or subscriptions changed (40)
    reset_consumer_offset          new offsets for a group's queues (220)
    get_consumer_status            the offsets of a group's member (221)
    get_consumer_running_info      a consumer's settings, queues and rates (307)
    consume_message_directly       one message to consume now, and the result (309)

Requests 307 and 309 come from an administrator, and the broker passes them on.
"""
