"""The servers' wing: a NameServer and a broker for development, tests and small sites. They keep what they acknowledge.

    nameserver    routes and the configuration of the cluster
    broker        storage, deliveries and the state of groups
    access        access control of both
    exporter      the figures of both for Prometheus
    embedded      both in the process of a test
    protocol      formats and conversations that servers alone use

The client's wing imports nothing from here except the embedded cluster.
"""
