"""The number of examples of property tests: the whole room in less than a minute on two busy cores."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "protocol", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("protocol")
