"""The client: route look-ups, sending and pulling over RocketMQ's remoting protocol.

`client` has the public class `Client`. `client_session` has its connections and background tasks, which producers and
consumers share. `producer` sends, always through `send.sender.Sender`. `consumer` reads, always through
`pull.puller.Puller`. `admin` administers a cluster. They use `routes`, which looks up the routes of topics, `remoting`,
which sends requests to servers, and `routing`, functions that choose NameServers and queues.
"""
