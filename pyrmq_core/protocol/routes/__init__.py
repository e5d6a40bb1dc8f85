"""Routes, topic configurations and broker registrations as values and JSON.

    route           `TopicRouteData`: a topic's queues by broker, and the brokers' addresses
    topic_config    `TopicConfig` as JSON, `DataVersion`, and the table of a broker's topics
    registration    the body of a broker's registration, decoded in steps

The requests with these values as their bodies are in `requests`.
"""
