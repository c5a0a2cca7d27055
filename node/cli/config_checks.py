"""The checks of `fifo config check`: a file, and what a node of it needs on this machine.

Owns each check and its words; `fifo doctor` runs those of a node too. Reads, resolves and binds for
an instant; makes and changes nothing. Must not print.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from node import certificates
from node.certificates import Certificate, CertificateUnreadable
from node.cli.errors import one_line
from node.cli.findings import Finding, advice, error, warning
from node.cli.limits import CERTIFICATE_DAYS_MIN
from node.config import Address
from node.journal.errors import NodeError
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import ClusterConfig, NodeConfig, TlsSettings

_DAY_S: Final = 86_400
_PLACE: Final = re.compile(r"\[+([\w.]+)\]+(?: (\d+))?(?: (\w+))?")
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")


# --- the file -------------------------------------------------------------------------------------


def check_file(
    path: Path, settings: ClusterConfig | None, problems: list[ConfigError]
) -> list[Finding]:
    """Everything that the file alone shows."""
    found = [_of_problem(path, problem) for problem in problems]
    if settings is not None:
        found += _members(path, settings)
        found += _people(path, settings)
        found += _modes(path, settings)
    return found


def _of_problem(path: Path, problem: ConfigError) -> Finding:
    text = one_line(problem).removeprefix(f"{path}: ")
    line = line_of(path, text)
    place = str(path) if line is None else f"{path}:{line}"
    return error("file", place, text)


def line_of(path: Path, problem: str) -> int | None:
    """The line of the key that a problem names, or else of its section; None if it names none."""
    at = _AT_LINE.search(problem)
    if at is not None:
        return int(at[1])
    place = _PLACE.match(problem)
    if place is None:
        return None
    section, number, key = place[1], int(place[2] or 1), place[3]
    header_line, seen = None, 0
    with suppress(OSError, UnicodeDecodeError):
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            header = _HEADER.match(text)
            if header is not None:
                if header_line is not None:
                    break
                seen += header[2] == section
                if header[2] == section and seen == number:
                    header_line = line
            elif header_line is not None and key is not None and _is_key(text, key):
                return line
    return header_line


def _is_key(text: str, key: str) -> bool:
    return re.match(rf'\s*"?{re.escape(key)}"?\s*=', text) is not None


def _members(path: Path, settings: ClusterConfig) -> Iterator[Finding]:
    place, nodes = str(path), settings.nodes
    if len(nodes) > 1 and len(nodes) % 2 == 0:
        fact = f"{len(nodes)} nodes tolerate no more losses than {len(nodes) - 1}"
        yield advice("members", place, fact, "use an odd number of [[node]] sections")
    if len(nodes) == 1 and not settings.join:
        fact = "a single node: nothing is replicated, and a lost disk loses everything"
        yield advice("members", place, fact, "use three [[node]] sections on three machines")
    for node in nodes if len(nodes) > 1 else ():
        for key, address in (("client", node.client), ("peer", node.peer)):
            if address.is_wildcard:
                fact = f"{key} = {str(address)!r} of {node.name} leads each peer to itself"
                yield error("wildcard", place, fact, "name a host that others can dial")
    proven = settings.secret or (settings.tls is not None and settings.tls.peer_cert)
    if len(nodes) > 1 and settings.users and not proven:
        fact = "users, but no secret_file: every program on this machine can act as a node"
        yield warning("peers_unproven", place, fact, "set secret_file in [cluster]")
    plain = settings.tls is None or settings.tls.client_cert is None
    if plain and any(not node.client.is_loopback for node in nodes):
        fact = "clients of other machines send passwords and messages unencrypted"
        yield warning("plain_client_port", place, fact, "set client_cert and client_key in [tls]")


def _people(path: Path, settings: ClusterConfig) -> Iterator[Finding]:
    place = str(path)
    for user in settings.users:
        if not user.may_anything:
            fact = f"user {user.name} has no permission, and can open no session"
            yield warning("user_without_permission", place, fact, "grant one, or remove the user")
    may = [*settings.users, *(() if settings.jwt is None else settings.jwt.groups)]
    if may and not settings.users_in_log and not any(user.operate for user in may):
        fact = "no user has operate = true: no one can transfer leadership or end sessions"
        yield warning("no_operator", place, fact, "set operate = true for an administrator")


def _modes(path: Path, settings: ClusterConfig) -> Iterator[Finding]:
    if settings.users:
        yield from _mode(path, "hashes of passwords")
    if settings.secret_file is not None:
        yield from _mode(settings.secret_file, "the secret of the nodes")


def _mode(path: Path, what: str) -> Iterator[Finding]:
    """A file with a secret that every user of the machine can read."""
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IROTH:
            fact = f"holds {what}, and every user of this machine can read it (mode {mode:o})"
            yield warning("readable_secret", str(path), fact, f"chmod {mode & 0o770:o} {path}")


# --- a node on this machine -----------------------------------------------------------------------


def check_node(path: Path, settings: ClusterConfig, name: str) -> list[Finding]:
    """Everything that this node needs on this machine."""
    try:
        node = settings.node(name)
    except ConfigError as problem:
        return [error("node", str(path), one_line(problem).removeprefix(f"{path}: "))]
    found = [*check_certificates(settings, node), *check_keys(settings)]
    for use, address in (("client", node.client), ("peer", node.peer), ("http", node.http)):
        found += _bindable(f"{name} {use}", address)
    for peer in settings.peers(name):
        found += _resolvable(f"{peer.name} peer", peer.peer)
    found += _data_dir(settings, node)
    return found


def check_certificates(settings: ClusterConfig, node: NodeConfig) -> Iterator[Finding]:
    """The files of `[tls]`: usable, in time, with the right names."""
    tls, place = settings.tls, f"{node.name} [tls]"
    if tls is None:
        return
    if tls.client_cert is not None:
        from node.broker.connections.listener import client_context

        try:
            client_context(tls, node.name)
        except ConfigError as problem:
            yield error("certificate", place, one_line(problem))
        else:
            yield from _client_certificate(tls, node)
    if tls.peer_cert is not None:
        yield from _peer_certificate(tls, node)


def check_keys(settings: ClusterConfig) -> Iterator[Finding]:
    """The keys of `[jwt]`, read or fetched as a node does."""
    if settings.jwt is None:
        return
    try:
        from node.broker.connections.jwt_keys import KeysUnusable, fetch
    except ImportError:
        fact = "PyJWT and cryptography are not installed, and no node starts without them"
        yield error("jwt", "[jwt]", fact, "pip install 'fifo-quorum[server,jwt]'")
        return
    try:
        asyncio.run(fetch(settings.jwt))
    except KeysUnusable as problem:
        fix = "no token is believed before they can be read; see docs/security.md"
        yield error("jwt", "[jwt] keys", one_line(problem), fix)


def _client_certificate(tls: TlsSettings, node: NodeConfig) -> Iterator[Finding]:
    cert, key = tls.path("client_cert", node.name), tls.path("client_key", node.name)
    yield from _in_time(cert, key)
    yield from _mode(key, "a private key")
    host = node.client.host
    if not node.client.is_wildcard and not certificates.covers(cert, key, host):
        names = ", ".join(certificates.read(cert, key).names) or "none"
        fact = f"does not name the host {host!r} that clients dial (it names: {names})"
        yield error("certificate_names", str(cert), fact, "have it issued for that host")


def _peer_certificate(tls: TlsSettings, node: NodeConfig) -> Iterator[Finding]:
    from node.raft import PeerTls

    cert, key, ca = (tls.path(f"peer_{what}", node.name) for what in ("cert", "key", "ca"))
    try:
        PeerTls(cert, key, ca).listening()
    except NodeError as problem:
        yield error("certificate", f"{node.name} [tls]", one_line(problem))
        return
    yield from _in_time(cert, key)
    yield from _mode(key, "a private key")
    with suppress(CertificateUnreadable):
        found = certificates.read(cert, key)
        dns = [name.removeprefix("DNS:") for name in found.names if name.startswith("DNS:")]
        if node.name not in (dns or [found.subject.removeprefix("CN=")]):
            fact = f"is for {', '.join(dns) or found.subject}, not for {node.name!r}"
            yield error("certificate_names", str(cert), fact, "its DNS name must be the node's")


def _in_time(cert: Path, key: Path) -> Iterator[Finding]:
    try:
        found = certificates.read(cert, key)
    except CertificateUnreadable as problem:
        yield error("certificate", str(cert), f"cannot be read: {problem}")
        return
    yield from of_times(str(cert), found, time.time())


def of_times(place: str, found: Certificate, now_s: float) -> Iterator[Finding]:
    """A certificate that has ended, is about to, or has not begun."""
    renew = "renew it; SIGHUP makes a node read it, without a restart"
    if found.ends <= now_s:
        yield error("certificate_ended", place, f"has ended on {_day(found.ends)}", renew)
    elif found.begins > now_s:
        fact = f"holds from {_day(found.begins)} on"
        yield error("certificate_not_begun", place, fact, "check the clock of this machine")
    elif found.ends - now_s < CERTIFICATE_DAYS_MIN * _DAY_S:
        days = int((found.ends - now_s) // _DAY_S)
        fact = f"ends on {_day(found.ends)}, in {days} days"
        yield warning("certificate_ends", place, fact, renew)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _resolvable(place: str, address: Address) -> Iterator[Finding]:
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        fact = f"{address}: the host cannot be resolved: {problem.strerror}"
        yield warning("address", place, fact, "check the name, and this machine's DNS")


def _bindable(place: str, address: Address) -> Iterator[Finding]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        fact = f"{address}: the host cannot be resolved: {problem.strerror}"
        yield error("address", place, fact, "name a host or an address of this machine")
        return
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
            probe.listen(1)
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                fact = f"{address} is in use"
                yield advice("port", place, fact, "good if this node runs; else stop what listens")
                return
            fact = f"{address} cannot be listened on: {problem.strerror}"
            yield error("address", place, fact, "configure an address of this machine")


def _data_dir(settings: ClusterConfig, node: NodeConfig) -> Iterator[Finding]:
    folder = node.data_dir
    place, other = f"{node.name} data_dir", "choose another data_dir, or change its owner"
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        yield error("data_dir", place, f"{there} is a file, not a folder", other)
    elif not os.access(there, os.W_OK | os.X_OK):
        what = "cannot be written" if there == folder else f"cannot be created in {there}"
        yield error("data_dir", place, f"{folder} {what} by this user", other)
    else:
        free = os.statvfs(there)
        free_bytes = free.f_bavail * free.f_frsize
        if free_bytes < 2 * settings.limits.disk_low_bytes:
            fact = f"{free_bytes} bytes are free, {settings.limits.disk_low_bytes} refuse publishes"
            yield warning("disk_room", place, fact, "free some, or use a larger disk")
