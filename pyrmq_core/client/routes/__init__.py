"""The routes of a client, the NameServers that it queries for them, and which topics are batch topics.

    route_table        `Routes`: routes by topic, fetched when first needed and refreshed, and `BatchTopics`: topics
                       whose brokers store a batch as one record
    name_servers       `NameServers`: a query to one NameServer, and to the next one after a failure
    name_server_url    the list of NameServers, fetched from a URL

`client/routing` chooses queues and addresses from a route.
"""
