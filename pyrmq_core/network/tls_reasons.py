"""The reasons for which TLS failed, each with its remedy.

Not only handshakes fail. In TLS 1.3 a client's handshake ends before the server has checked the client's certificate,
so the client's first read raises the refusal.
"""

from __future__ import annotations

import ssl
from typing import Final

OWN_CERTIFICATE: Final = "context.load_cert_chain(...) (Spark: tlsCertFile; pyrmq: --tls-cert)"
AUTHORITY: Final = "cafile= of ssl.create_default_context (Spark: tlsCaFile; pyrmq: --tls-ca)"
# The meaning of OpenSSL's reasons: alerts from the peer, and failures on this side.
REASONS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"the other end wants a certificate of this client: {OWN_CERTIFICATE}",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other end refused the handshake; it may want a certificate of this client: "
    + OWN_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other end does not take this client's certificate: " + OWN_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "the other end does not trust the authority of this end's certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and tls.server.need.client.auth wants one",
    "WRONG_VERSION_NUMBER": "it answered in plain; switch TLS off here, or on there",
    "RECORD_LAYER_FAILURE": "it answered in plain; switch TLS off here, or on there",
}


def tls_reason(error: BaseException) -> str | None:
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        named = cause.verify_code in HOSTNAME_CODES
        remedy = "connect by a name in it, or set check_hostname=False (Spark: tlsVerify; pyrmq: --tls-verify ca)"
        why = cause.verify_message
        return (
            f"TLS: its certificate is not accepted ({why}); {remedy if named else f'trust its authority: {AUTHORITY}'}"
        )
    return (
        f"TLS: {REASONS.get(cause.reason or '') or f'{cause.reason or cause}; compare the TLS settings of both ends'}"
    )


# OpenSSL's codes X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
HOSTNAME_CODES: Final = (62, 64)
