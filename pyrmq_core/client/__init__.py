"""The client: routes, sending and pulling over RocketMQ's remoting protocol.

`client` has the public class, `client_session` its connections and background tasks, which producers and consumers
share. `producer` sends, always by `send.sender.Sender`. `consumer` reads, and `pull.puller.Puller` does every pull.
`admin` administers. Below them, `routes` looks routes up, `remoting` calls servers, and `routing` has plain functions
that choose NameServers and queues.
"""
