"""Choices of queues and NameServers, as pure functions and values.

    publish_info          the queues of a route for producers (`TopicPublishInfo`) and consumers, and their order
    name_server_choice    the addresses of NameServers, and the chosen one

`client/routes` queries the NameServers.
"""
