"""Requests that a broker answers.

    send_message           SEND_MESSAGE (10, 310, 320) and replies (324, 325)
    pull_message           PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)
    offsets                the lowest and highest offset of a queue, and offsets by time (29 to 32)
    consumer_offsets       committed offsets of a group (14, 15)
    consumer_list          the client ids of a group's members (38)
    consumer_send_back     a message that a consumer could not handle (36)
    consumer_admin         offsets of a group, reset and read by an administrator (222, 223)
    group_admin            what groups consume, copies of their offsets, forbidden topics (303 to 353)
    heartbeat              HEART_BEAT (34) and UNREGISTER_CLIENT (35)
    lock_queues            queues locked by one client of a group (41, 42)
    end_transaction        the end of a transaction (37), and checks begun anew (323)
    recall_message         a delayed message withdrawn (370)
    query_message          stored messages by id or key (12, 33)
    topic_admin            topics created, changed, deleted and read (17, 215, 351)
    group_config           a group's settings (352)
    check_client_config    the check of a filter expression (46)
    plain_acl, users       accounts of 4.x (50 to 54), users and policies of 5.x (3001 to 3010)

`send_message` and `pull_message` also read usual answers faster, since one arrives for each message or pull.
"""
