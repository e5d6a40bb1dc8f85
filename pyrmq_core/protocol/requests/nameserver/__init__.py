"""Requests that a NameServer answers.

    get_route_info       a topic's route (105)
    register_broker      brokers that register, unregister and compare versions (103, 104, 322)
    broker_heartbeat     BROKER_HEARTBEAT (904), and the notice of a new smallest broker id (905)
    cluster_info         the brokers that a NameServer knows (106, 901)
    topic_lists          lists of topics (206, 224, 304, 311, 312, 313)
    topic_in_namesrv     one topic's route changed by an administrator (216, 217)
    kv_config            the NameServer's table of keys and values (100, 101, 102, 219)
    write_perm           a broker's topics closed for writing, and opened again (205, 327)
    namesrv_config       the NameServer's own settings (318, 319)

Only 905 goes the other way: a NameServer sends it to brokers.
"""
