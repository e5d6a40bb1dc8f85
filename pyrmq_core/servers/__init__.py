"""The servers: a NameServer and a broker for development, tests and small sites.

They do not lose what they have acknowledged.

    nameserver    routes and the configuration of the cluster
    broker        storage, deliveries and the state of groups
    access        access control of both
    exporter      metrics of both for Prometheus
    embedded      both in one process with a test
    protocol      formats, requests and responses that only servers use

The packages of the client import nothing from here except the embedded cluster.
"""
