"""Certificates as a client of them would see: whom they name, and from when until when they hold.

Owns one handshake in memory, of a certificate with a reader that trusts it and nothing else:
OpenSSL decodes it, and answers whether it names a host. Must not know ports, keys of a
configuration or what is to be done about a certificate that ends.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: a certificate that has ended is to be read as well."""

_ROUNDS_MAX: Final = 8
"""Flights of a handshake; TLS 1.3 takes three."""


class CertificateUnreadable(ValueError):
    """No certificate and key that belong together; the text says why."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, with times in seconds since 1970."""

    begins: float
    ends: float
    names: tuple[str, ...]
    """DNS names and addresses, as `DNS:host` and `IP Address:1.2.3.4`."""
    subject: str


def read(cert: Path, key: Path) -> Certificate:
    """Decode a PEM certificate. Raises CertificateUnreadable."""
    found = _decoded(cert, key, None)
    names = tuple(f"{kind}:{name}" for kind, name in found.get("subjectAltName", ()))
    return Certificate(
        begins=ssl.cert_time_to_seconds(found["notBefore"]),
        ends=ssl.cert_time_to_seconds(found["notAfter"]),
        names=names,
        subject=subject_of(found),
    )


def covers(cert: Path, key: Path, host: str) -> bool:
    """Whether a client that dials this host accepts the certificate's names."""
    try:
        _decoded(cert, key, host)
    except CertificateUnreadable:
        return False
    return True


def subject_of(certificate: Any) -> str:
    """The subject of a decoded certificate as one text, as in `CN=billing,O=Shop`."""
    short = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return ",".join(f"{short.get(name, name)}={value}" for name, value in pairs)


def _decoded(cert: Path, key: Path, host: str | None) -> dict[str, Any]:
    showing, reading = _contexts(cert, key, host)
    to_reader, to_shower = ssl.MemoryBIO(), ssl.MemoryBIO()
    shower = showing.wrap_bio(to_shower, to_reader, server_side=True)
    reader = reading.wrap_bio(to_reader, to_shower, server_hostname=host)
    for _ in range(_ROUNDS_MAX):
        try:
            reader.do_handshake()
        except ssl.SSLWantReadError:
            _go_on(shower)
        except ssl.SSLError as error:
            raise CertificateUnreadable(_reason(error)) from None
        else:
            found = reader.getpeercert()
            assert found is not None, "verified, and so decoded"
            return dict(found)
    raise CertificateUnreadable("the handshake with it does not end")


def _go_on(shower: ssl.SSLObject) -> None:
    try:
        shower.do_handshake()
    except ssl.SSLWantReadError:
        return
    except ssl.SSLError as error:
        raise CertificateUnreadable(_reason(error)) from None


def _contexts(cert: Path, key: Path, host: str | None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    reading = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reading.check_hostname = host is not None
    reading.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    try:
        showing.load_cert_chain(cert, key, password=lambda: "")
        reading.load_verify_locations(cert)
    except OSError as error:
        raise CertificateUnreadable(_reason(error)) from None
    return showing, reading


def _reason(error: OSError) -> str:
    said = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    return str(said or error.strerror or error)
