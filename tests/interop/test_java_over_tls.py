"""Java's client of both releases and a Java broker on our servers that take TLS only; they check our certificate."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, boot_broker, registered_brokers
from tests.support.certificates import Certificates
from tests.support.java_programs import run_java

PROGRAM = Path(__file__).parent / "java" / "SendAndPull.java"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def java_options(certificates: Certificates) -> list[str]:
    """Returns options that make Java's calls speak TLS and verify the server."""
    options = {**certificates.calls(), "tls.test.mode.enable": "false"}
    return [f"-D{name}={value}" for name, value in options.items()]


def accepting_any() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
def test_a_java_client_sends_and_pulls(version: str, certificates: Certificates) -> None:
    settings = {**certificates.server(), **certificates.calls()}
    with EmbeddedCluster(brokers=1, settings=settings, nameserver_settings=certificates.server()) as cluster:
        options = java_options(certificates)
        printed = run_java(version, PROGRAM, cluster.nameserver, "JavaTopic", java_options=options)
    assert len(re.findall(r"^sent SEND_OK ", printed, re.MULTILINE)) == 22
    assert len(re.findall(r"^read ", printed, re.MULTILINE)) == 71


@pytest.mark.soak  # to a NameServer a broker is a client, and the other test has one
def test_a_java_broker_registers(certificates: Certificates) -> None:
    """Its own port makes itself a certificate (Apache's default), so that only our NameServer's is checked."""
    client = [*java_options(certificates)[:-1], "-Dtls.server.mode=permissive"]
    with (
        EmbeddedCluster(brokers=1, settings=certificates.calls(), nameserver_settings=certificates.server()) as cluster,
        boot_broker("5.4.0", cluster.nameserver, "java", java_options=client, tls=accepting_any()) as broker,
    ):
        assert registered_brokers(cluster.nameserver, tls=certificates.trusting())["java"] == {broker.address}
