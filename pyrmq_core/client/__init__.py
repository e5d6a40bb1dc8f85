"""The client: routes, sending and pulling over RocketMQ's remoting protocol.

`client` is the public face and `client_session` what the rest of the library uses of it: connections and the tasks that
keep routes fresh. `producer` sends (everything through `send.sender.Sender`), `consumer` reads (everything through
`pull.puller.Puller`), `admin` administers. Below them, `routes` looks routes up, `remoting` calls servers, and
`routing` decides, pure.
"""
