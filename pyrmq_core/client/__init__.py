"""The client: routes, sending and pulling over RocketMQ's remoting protocol.

`routing` decides (pure), `client.Client` owns connections and the tasks that keep routes fresh, `sending.Sender` is
the one road of everything sent and `pulling.Puller` the one road of everything read; `Producer` and `PullConsumer` are
their faces.
"""
