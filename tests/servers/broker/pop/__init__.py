"""Pop consumption of the broker: values, a model, and requests over sockets."""
