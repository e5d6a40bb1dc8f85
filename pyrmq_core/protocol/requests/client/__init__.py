"""Requests that a broker sends to a client, over a connection that the client opened.

    check_transaction_state    the question for the state of a half message's transaction (39)
    push_reply                 the reply to a request message (326)

`client/callbacks` answers them.
"""
