"""Certificates for tests: an authority, PEM files for servers and clients, and contexts that trust them."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Certificates:
    """Files in a directory: `cert.pem` and `key.pem` for 127.0.0.1, `authority.pem`; PKCS#8, as RocketMQ wants keys."""

    def __init__(self, directory: Path, *, password: str = "") -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        self.cert, self.key, self.trust = (directory / name for name in ("cert.pem", "key.pem", "authority.pem"))
        locked: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        self.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        self.authority.cert_pem.write_to_path(str(self.trust))

    def server(self, mode: str = "enforcing") -> dict[str, str]:
        """Returns a server's settings, under RocketMQ's names."""
        paths = {"tls.server.certPath": str(self.cert), "tls.server.keyPath": str(self.key)}
        return {"tls.server.mode": mode, **paths}

    def calls(self) -> dict[str, str]:
        """Returns a broker's settings for its calls to NameServers."""
        trust = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(self.trust)}
        return {"tls.enable": "true", **trust}

    def trusting(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """Returns a client's context."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if with_certificate:
            self.authority.issue_cert("client.example").configure_cert(context)
        return context
