"""The packages that a client of Spark Connect needs and pyrmq does not."""

from pathlib import Path

from tests.support.apart import installed_apart

PACKAGES = (
    "pandas==3.1.1",
    "python-dateutil==4.0.0",
    "six==1.17.0",
    "grpcio==1.85.1",
    "grpcio-status==1.85.1",
    "googleapis-common-protos==1.76.0",
    "protobuf==7.36.2",
)


def connect_client() -> Path:
    """Returns a directory for PYTHONPATH; raises `ApacheUnavailable` where the packages cannot be downloaded."""
    return installed_apart("connect-4.3", PACKAGES)
