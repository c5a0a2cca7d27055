"""TLS between members: one authority, one certificate per member that carries the member's name.

Owns the two contexts of a node and what a certificate proves: the holder of one of this authority
for the name `n2` is n2, and no other proof counts. Must not know frames or sockets, nor when a
connection is made. `load_chain` serves the client port too.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.journal.errors import NodeError

if TYPE_CHECKING:
    from collections.abc import Mapping


class CertificateUnusable(NodeError):
    """A file of `[tls]` that cannot be used; the message names key and file."""


@dataclass(frozen=True, slots=True)
class PeerTls:
    """PEM files of one member: its certificate, its key, and the authority of all members."""

    cert: Path
    key: Path
    ca: Path

    def listening(self) -> ssl.SSLContext:
        """For connections that come in. Raises `CertificateUnusable`."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def dialing(self) -> ssl.SSLContext:
        """For connections that go out: members are known by name, not by where they are."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        load_chain(context, self.cert, self.key, kind="peer")
        try:
            context.load_verify_locations(self.ca)
        except OSError as error:
            problem = _unreadable(self.ca) or f"is no PEM certificate: {error}"
            raise CertificateUnusable(f"[tls] peer_ca: {self.ca}: {problem}") from None
        return context


def load_chain(context: ssl.SSLContext, cert: Path, key: Path, *, kind: str) -> None:
    """Load what this side shows; `kind` is the port in the names of the keys of `[tls]`.

    Raises `CertificateUnusable`.
    """
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except OSError as error:  # SSLError is one, and says nothing that a person understands.
        raise CertificateUnusable(_unusable(cert, key, kind, error)) from None


def _unusable(cert: Path, key: Path, kind: str, error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"[tls] {kind}_key: {key}: is not the unencrypted PEM key of {cert}"
    for name, path in (("cert", cert), ("key", key)):
        if (problem := _unreadable(path)) is not None:
            return f"[tls] {kind}_{name}: {path}: {problem}"
    return f"[tls] {kind}_cert: {cert}: cannot be used: {error}"


def _unreadable(path: Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Whom a verified certificate stands for: its DNS names, or else its common name."""
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    if not names:
        subject = (pair for part in certificate.get("subject", ()) for pair in part)
        names = [value for kind, value in subject if kind == "commonName"]
    return frozenset(names)
