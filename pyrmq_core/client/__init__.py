"""The client: routes, sending and pulling over RocketMQ's remoting protocol.

`client` has the public class, and `client_session` its connections and background tasks, which producers and consumers
share. `producer` sends, always through `send.sender.Sender`. `consumer` reads, always through `pull.puller.Puller`.
`admin` administers. They use `routes`, which looks routes up, `remoting`, which calls servers, and `routing`, plain
functions that choose NameServers and queues.
"""
