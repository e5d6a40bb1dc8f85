"""Requests that a NameServer answers.

    get_route_info       a topic's route (105)
    cluster_info         the brokers that a NameServer knows (106, 901)
    topic_lists          lists of topics (206, 224, 304, 311, 312, 313)
    topic_in_namesrv     one topic's route changed by an administrator (216, 217)
    kv_config            the NameServer's table of keys and values (100, 101, 102, 219)
    write_perm           the write permission of a broker's topics, removed and restored (205, 327)
    namesrv_config       the NameServer's own settings (318, 319)

Requests that brokers send to a NameServer (103, 104, 322, 904) are in `servers/protocol`.
"""
