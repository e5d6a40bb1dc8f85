"""Topic routes and topic configurations as values and JSON.

    route           `TopicRouteData`: a topic's queues by broker, and the brokers' addresses
    topic_config    `TopicConfig` as JSON, `DataVersion`, and the table of a broker's topics

The requests that have these values as bodies are in `requests`.
"""
