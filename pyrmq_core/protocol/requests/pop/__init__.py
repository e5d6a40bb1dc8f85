"""Requests of consumers that pop: a broker returns single messages, each with a receipt and an invisible time.

    receipt           the receipt of a popped message, and the names of retry topics
    pop_message       POP_MESSAGE (200050)
    settle            ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053)
    notification      NOTIFICATION (200054) and POLLING_INFO (200055)
    assignments       QUERY_ASSIGNMENT (400) and SET_MESSAGE_REQUEST_MODE (401)
    lite              POP_LITE_MESSAGE (200070), and subscriptions to lite topics (200071, 200073)

Requests with codes above 32,767 are sent with JSON headers, since binary headers have 16 bits for the code. Brokers
before 5.0 answer REQUEST_CODE_NOT_SUPPORTED.
"""
