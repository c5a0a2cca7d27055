"""TLS on the client port: what a node shows to its clients.

Owns the context of a listening port. Must not know connections, sessions or users.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from node.peers.tls import CertificateUnusable, load_chain
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import TlsSettings


def client_context(settings: TlsSettings, node: str) -> ssl.SSLContext:
    """What a node shows to its clients. Raises ConfigError where a file cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show_certificate(context, settings, node)
    return context


def show_certificate(context: ssl.SSLContext, settings: TlsSettings, node: str) -> None:
    """Show this certificate from the next connection on, also on a port that is open.

    Raises ConfigError where a file cannot be used; the context may be of no use then.
    """
    cert, key = settings.path("client_cert", node), settings.path("client_key", node)
    try:
        load_chain(context, cert, key, kind="client")
    except CertificateUnusable as error:
        raise ConfigError(str(error)) from None
