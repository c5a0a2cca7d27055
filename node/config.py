"""The configuration of a cluster: one TOML file, read into frozen dataclasses.

Owns the names, defaults and bounds of every key of ``cluster.toml`` but those of ``[[user]]``
(`users.py`) and ``[jwt]`` (`identity.py`). Must not know sockets, Raft or queues, and never touches
a disk except to read the file it is given and the secret that file names. A key added here belongs
into ``cluster.example.toml`` in the same commit; a test loads that file.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from node.identity import JwtSettings, jwt_lines, read_jwt
from node.table import ConfigError, Table, label_of, quoted, read_toml
from node.users import User, read_users, user_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

T = TypeVar("T")

BASE_PORT_DEFAULT: Final = 7100
"""First port of a local cluster: node i (from 0) listens at base + 10 i + 1, + 2 and + 3."""

NODES_MAX: Final = 9
"""More voters cost a round trip each and gain nothing: nine survive the loss of four."""

PORT_MAX: Final = 65_535
"""The largest TCP port."""

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

BALANCERS_MAX: Final = 100
"""Addresses and networks of balancers; each connection is compared with all of them."""

IN_LOG: Final = "log"
"""The value of ``users`` in [cluster] where the users of the log hold."""

AUTOMATIC: Final = "automatic"
"""The value of ``upgrade`` in [cluster] where an upgrade is finished as soon as it can be."""

SECRET_BYTES_MIN: Final = 16
"""A shorter secret could be guessed from one recorded handshake between two nodes."""

_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where a socket listens. ``str()`` gives ``host:port``, with brackets around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        """The text form that `parse_address` reads back."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True where only programs on this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """True for "all addresses of this machine" (0.0.0.0), which no other machine can dial."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A member: its name, its three listening addresses and the folder of its journal."""

    name: str
    client: Address
    peer: Address
    http: Address
    data_dir: Path


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Timings of the consensus, in milliseconds, and bytes of its log between two snapshots; the
    reasons are in ``docs/decisions.md`` and ``docs/storage.md``."""

    heartbeat_ms: int = 100
    election_min_ms: int = 600
    election_max_ms: int = 1000
    connection_timeout_ms: int = 4000
    snapshot_bytes: int = 256 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits of one node; beyond them a client gets a typed error, never a stall."""

    body_bytes: int = _MEBIBYTE
    queues: int = 10_000
    sessions: int = 10_000
    consumers: int = 100_000
    prefetch: int = 65_535
    in_flight_publishes: int = 100_000
    memory_high_bytes: int = 512 * _MEBIBYTE
    disk_low_bytes: int = 256 * _MEBIBYTE
    requests_per_s: int = 40_000
    bytes_per_s: int = 256 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The certificates of ``[tls]``, as the file names them; ``{node}`` stands for a node's name.

    With ``client_cert`` and ``client_key`` the client port speaks TLS and nothing else, and so does
    the http port where it is not on loopback. Certificates of clients that ``client_ca`` signed
    prove who they are, where a user has their subject. With the three of the peer port, nodes speak
    TLS to each other and prove by their certificates who they are.
    ``http_ca`` is what the http port trusts when it connects to client ports; without it the
    authorities of the system.
    """

    folder: Path
    client_cert: str | None = None
    client_key: str | None = None
    client_ca: str | None = None
    peer_cert: str | None = None
    peer_key: str | None = None
    peer_ca: str | None = None
    http_ca: str | None = None

    def path(self, key: str, node: str) -> Path:
        """The file that this key names for this node; the key must be set."""
        text: str = getattr(self, key)
        return self.folder / text.replace("{node}", node)


TLS_KEYS: Final = (
    *("client_cert", "client_key", "client_ca", "peer_cert", "peer_key", "peer_ca"),
    "http_ca",
)

_RAFT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    # Below 10 ms the heartbeats themselves load the loop; above a minute no client would wait.
    "heartbeat_ms": (10, 60_000),
    "election_min_ms": (50, 60_000),
    "election_max_ms": (50, 120_000),
    "connection_timeout_ms": (100, 600_000),
    # Below a mebibyte a node would do little but take snapshots; a start reads about this much.
    "snapshot_bytes": (_MEBIBYTE, 1 << 40),
}

_LIMIT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    # A body travels whole in one log entry, which is at most 2 MiB: lower, never higher.
    "body_bytes": (1, _MEBIBYTE),
    "queues": (1, 10_000),
    # The machine takes no more.
    "sessions": (1, 100_000),
    "consumers": (1, 1_000_000),
    # The wire carries prefetch in 16 bits.
    "prefetch": (1, 65_535),
    "in_flight_publishes": (1, 10_000_000),
    # Under 64 MiB the caches of the journal alone would stop every publisher.
    "memory_high_bytes": (64 * _MEBIBYTE, 1 << 50),
    # One segment of the journal must always fit, or a node could not even record a vote.
    "disk_low_bytes": (64 * _MEBIBYTE, 1 << 50),
    # Of all users; each may take half of it. A user without requests could not even look.
    "requests_per_s": (2, 10_000_000),
    "bytes_per_s": (2 * _MEBIBYTE, 1 << 50),
}


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A validated configuration. ``path`` is the file it came from, None when made in memory.

    Without ``users`` every client on this machine may do everything, and no other can connect, but
    for ``users_in_log``: the cluster's users are in its log, whatever this file says. ``join``:
    peer addresses at which a node that is no member by this file asks who the members are.
    """

    name: str
    cluster_id: bytes
    secret: bytes | None = field(repr=False)
    nodes: tuple[NodeConfig, ...]
    raft: RaftSettings = RaftSettings()
    limits: LimitSettings = LimitSettings()
    tls: TlsSettings | None = None
    users: tuple[User, ...] = ()
    users_in_log: bool = False
    balancers: tuple[Network, ...] = ()
    upgrade_automatic: bool = False
    join: tuple[Address, ...] = ()
    jwt: JwtSettings | None = None
    path: Path | None = None
    secret_file: Path | None = None

    def node(self, name: str) -> NodeConfig:
        """The member of that name; ConfigError names those that exist."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ConfigError(
            f"{label_of(self.path)}: no [[node]] is named {name!r}; there are: {known}"
        )

    def peers(self, name: str) -> tuple[NodeConfig, ...]:
        """Every member but that one, in the order of the file."""
        return tuple(node for node in self.nodes if node.name != name)

    @property
    def url(self) -> str:
        """The address list that a client connects to."""
        scheme = "fifo" if self.tls is None or self.tls.client_cert is None else "fifos"
        return f"{scheme}://" + ",".join(str(node.client) for node in self.nodes)


def cluster_id_of(name: str) -> bytes:
    """The 16 bytes that mark journals and peers as belonging to the cluster of that name."""
    return hashlib.sha256(name.encode()).digest()[:16]


def parse_address(text: str) -> Address:
    """Read ``host:port`` or ``[ipv6]:port``; ValueError says what is wrong."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f'{text!r} is not "host:port"')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, as in [::1]:7101")
    if not port_text.isascii() or not port_text.isdigit():
        raise ValueError(f"{text!r}: the port {port_text!r} is not a number")
    port = int(port_text[:6])
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"{text!r}: the port must be from 1 to {PORT_MAX}")
    return Address(host, port)


def load_config(path: Path) -> ClusterConfig:
    """Read and check a ``cluster.toml``; relative paths in it are relative to its folder.

    Raises ConfigError, whose one line names the file and the key.
    """
    config, problems = examine(path)
    if problems:
        raise problems[0]
    assert config is not None, "there is one where there are no problems"
    return config


def examine(path: Path) -> tuple[ClusterConfig | None, list[ConfigError]]:
    """Read and check a ``cluster.toml``, and find the first problem of each of its sections; the
    configuration is None where there are any."""
    label = label_of(path)
    folder = path.absolute().parent
    problems: list[ConfigError] = []

    def part(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigError as error:
            problems.append(error)
            return None

    document = part(lambda: read_toml(path, label))
    if document is None:
        return None, problems
    top = Table(document, label, "")
    cluster = part(lambda: _cluster_keys(top, folder))
    tables = part(lambda: top.tables("node"))
    users = part(lambda: read_users(top.tables("user", required=False)))
    raft = part(lambda: _raft_settings(top.table("raft", required=False)))
    limits = part(lambda: _limit_settings(top.table("limits", required=False)))
    tls = part(lambda: _tls_settings(top.table("tls", required=False), folder))
    signed = part(lambda: top.table("jwt", required=False))
    jwt = part(lambda: read_jwt(signed, folder)) if "jwt" in document else None
    part(top.finish)
    secret = None
    if cluster is not None and cluster.secret_file is not None:
        secret_file = cluster.secret_file
        secret = part(lambda: _read_secret(secret_file, label))
    nodes = [part(partial(_node_config, table, folder)) for table in tables or ()]
    if problems or cluster is None:
        return None, problems
    config = ClusterConfig(
        name=cluster.name,
        cluster_id=cluster_id_of(cluster.name),
        secret=secret,
        nodes=tuple(node for node in nodes if node is not None),
        raft=raft or RaftSettings(),
        limits=limits or LimitSettings(),
        tls=tls,
        users=users or (),
        users_in_log=cluster.users_in_log,
        balancers=cluster.balancers,
        upgrade_automatic=cluster.upgrade_automatic,
        join=cluster.join,
        jwt=jwt,
        path=path,
        secret_file=cluster.secret_file,
    )
    part(lambda: _check_members(config, label))
    part(lambda: check_join(config))
    part(lambda: _check_exposure(config, label))
    return (None if problems else config), problems


class _ClusterKeys(NamedTuple):
    name: str
    secret_file: Path | None
    users_in_log: bool
    balancers: tuple[Network, ...]
    upgrade_automatic: bool
    join: tuple[Address, ...]


def _cluster_keys(top: Table, folder: Path) -> _ClusterKeys:
    cluster = top.table("cluster")
    name = cluster.name("name")
    secret_file = cluster.optional_text("secret_file")
    users = cluster.optional_text("users")
    if users not in (None, IN_LOG):
        raise cluster.error("users", f'{users!r}: must be "{IN_LOG}", or left out')
    balancers = _networks(cluster, "balancers")
    upgrade = cluster.optional_text("upgrade")
    if upgrade not in (None, AUTOMATIC):
        raise cluster.error("upgrade", f'{upgrade!r}: must be "{AUTOMATIC}", or left out')
    join = tuple(_join(cluster, text) for text in cluster.texts("join", NODES_MAX, 300))
    cluster.finish()
    secret_path = None if secret_file is None else folder / secret_file
    return _ClusterKeys(name, secret_path, users == IN_LOG, balancers, upgrade == AUTOMATIC, join)


def _join(table: Table, text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise table.error("join", str(error)) from None


def _networks(table: Table, key: str) -> tuple[Network, ...]:
    found = []
    for text in table.texts(key, BALANCERS_MAX, 64):
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise table.error(key, f"{error}; write it as in 10.0.0.5 or 10.0.0.0/24") from None
    return tuple(found)


def cluster_config(count: int, base_port: int, directory: Path) -> ClusterConfig:
    """A loopback cluster of ``count`` nodes that keeps everything under ``directory``."""
    if not 1 <= count <= NODES_MAX:
        raise ConfigError(f"a cluster has from 1 to {NODES_MAX} nodes, not {count}")
    last_port = base_port + 10 * (count - 1) + 3
    if base_port < 1 or last_port > PORT_MAX:
        raise ConfigError(
            f"base port {base_port}: {count} nodes need the ports up to {last_port},"
            f" and the highest is {PORT_MAX}"
        )
    folder = directory.absolute()
    nodes = tuple(
        _loopback_node(f"n{i + 1}", base_port + 10 * i, folder / f"n{i + 1}" / "data")
        for i in range(count)
    )
    return ClusterConfig("local", cluster_id_of("local"), None, nodes, path=folder / "cluster.toml")


def single_node_config(data_dir: Path, base_port: int = BASE_PORT_DEFAULT) -> ClusterConfig:
    """A single node on loopback, for ``fifo serve`` without arguments."""
    node = _loopback_node("n1", base_port, data_dir.absolute())
    return ClusterConfig("single", cluster_id_of("single"), None, (node,))


def to_toml(config: ClusterConfig) -> str:
    """The text of a file that `load_config` reads back as this configuration."""
    folder = None if config.path is None else config.path.absolute().parent
    lines = ["[cluster]", f"name = {quoted(config.name)}"]
    if config.secret_file is not None:
        lines.append(f"secret_file = {quoted(_relative(config.secret_file, folder))}")
    if config.users_in_log:
        lines.append(f"users = {quoted(IN_LOG)}")
    if config.balancers:
        lines.append(f"balancers = [{', '.join(quoted(str(one)) for one in config.balancers)}]")
    if config.upgrade_automatic:
        lines.append(f"upgrade = {quoted(AUTOMATIC)}")
    if config.join:
        lines.append(f"join = [{', '.join(quoted(str(one)) for one in config.join)}]")
    for node in config.nodes:
        lines += [
            "",
            "[[node]]",
            f"name = {quoted(node.name)}",
            f"client = {quoted(str(node.client))}",
            f"peer = {quoted(str(node.peer))}",
            f"http = {quoted(str(node.http))}",
            f"data_dir = {quoted(_relative(node.data_dir, folder))}",
        ]
    for section, settings in (("raft", config.raft), ("limits", config.limits)):
        lines += ["", f"[{section}]"]
        lines += [f"{field.name} = {getattr(settings, field.name)}" for field in fields(settings)]
    if config.tls is not None:
        lines += ["", "[tls]"]
        lines += [
            f"{key} = {quoted(value)}"
            for key in TLS_KEYS
            if (value := getattr(config.tls, key)) is not None
        ]
    for user in config.users:
        lines += ["", "[[user]]", *user_lines(user)]
    if config.jwt is not None:
        lines += jwt_lines(config.jwt)
    return "\n".join(lines) + "\n"


def _read_secret(path: Path, label: str) -> bytes:
    where = f"{label}: [cluster] secret_file: {path}"
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"{where}: has {len(secret)} bytes, needs at least {SECRET_BYTES_MIN}")
    return secret


def _node_config(table: Table, folder: Path) -> NodeConfig:
    node = NodeConfig(
        name=table.name("name"),
        client=_address(table, "client"),
        peer=_address(table, "peer"),
        http=_address(table, "http"),
        data_dir=folder / table.text("data_dir"),
    )
    table.finish()
    return node


def _address(table: Table, key: str) -> Address:
    try:
        return parse_address(table.text(key))
    except ValueError as error:
        raise table.error(key, str(error)) from None


def _tls_settings(table: Table, folder: Path) -> TlsSettings | None:
    found = {key: table.optional_text(key) for key in TLS_KEYS}
    table.finish()
    if (found["client_cert"] is None) != (found["client_key"] is None):
        raise table.error("client_cert", "and client_key belong together: set both or neither")
    if found["client_ca"] is not None and found["client_cert"] is None:
        raise table.error("client_ca", "has no effect without client_cert: set both, or neither")
    peer = [found[key] is None for key in ("peer_cert", "peer_key", "peer_ca")]
    if any(peer) and not all(peer):
        raise table.error("peer_cert", "peer_key and peer_ca belong together: set all or none")
    if found["http_ca"] is not None and found["client_cert"] is None:
        raise table.error("http_ca", "is of no use without client_cert: remove it, or set both")
    return None if all(value is None for value in found.values()) else TlsSettings(folder, **found)


def _raft_settings(table: Table) -> RaftSettings:
    defaults = RaftSettings()
    values = {
        key: table.integer(key, getattr(defaults, key), bounds)
        for key, bounds in _RAFT_BOUNDS.items()
    }
    table.finish()
    raft = RaftSettings(**values)
    if raft.election_min_ms <= 3 * raft.heartbeat_ms:
        raise table.error(
            "election_min_ms",
            f"{raft.election_min_ms} must exceed three heartbeats"
            f" (3 x heartbeat_ms = {3 * raft.heartbeat_ms})",
        )
    if raft.election_max_ms <= raft.election_min_ms:
        raise table.error(
            "election_max_ms",
            f"{raft.election_max_ms} must exceed election_min_ms ({raft.election_min_ms})",
        )
    if raft.connection_timeout_ms < raft.election_max_ms:
        raise table.error(
            "connection_timeout_ms",
            f"{raft.connection_timeout_ms} must be at least election_max_ms"
            f" ({raft.election_max_ms})",
        )
    return raft


def _limit_settings(table: Table) -> LimitSettings:
    defaults = LimitSettings()
    values = {
        key: table.integer(key, getattr(defaults, key), bounds)
        for key, bounds in _LIMIT_BOUNDS.items()
    }
    table.finish()
    return LimitSettings(**values)


def _check_members(config: ClusterConfig, label: str) -> None:
    """Names, addresses and folders are each used once, or two nodes would fight over them."""
    if len(config.nodes) > NODES_MAX:
        raise ConfigError(f"{label}: {len(config.nodes)} [[node]] sections; {NODES_MAX} at most")
    nodes = list(enumerate(config.nodes, 1))
    _refuse_repeat(((node.name, f"{number} name") for number, node in nodes), label)
    _refuse_repeat(
        (
            (str(address), f"{number} {kind}")
            for number, node in nodes
            for kind, address in _addresses_of(node)
        ),
        label,
    )
    _refuse_repeat(
        ((str(node.data_dir.resolve()), f"{number} data_dir") for number, node in nodes), label
    )


def check_join(config: ClusterConfig) -> None:
    """Raise ConfigError where a node that joins lists others than itself: the log has them."""
    if config.join and len(config.nodes) > 1:
        raise ConfigError(
            f"{label_of(config.path)}: [cluster] join: a node that joins lists itself alone, and "
            f"there are {len(config.nodes)} [[node]] sections: remove the others, or leave out join"
        )


def _check_exposure(config: ClusterConfig, label: str) -> None:
    """Refuse a configuration in which other machines reach a port without authentication."""
    users = (
        "[[user]] sections: who may connect, and what each may do"
        f' (or users = "{IN_LOG}" in [cluster], once they are kept by `fifo user`)'
    )
    known = config.users or config.users_in_log or config.jwt
    peers = "secret_file in [cluster], what the nodes share, or peer_cert in [tls]"
    needs = {
        "client": None if known else users,
        "peer": None if config.secret or _peer_tls(config) else peers,
        "http": None if known else users,
    }
    for number, node in enumerate(config.nodes, 1):
        for kind, address in _addresses_of(node):
            need = needs[kind]
            if need is not None and not address.is_loopback:
                raise ConfigError(
                    f"{label}: [[node]] {number} {kind}: {address} is not a loopback address:"
                    f" it needs {need}"
                )


def _peer_tls(config: ClusterConfig) -> bool:
    return config.tls is not None and config.tls.peer_cert is not None


def _refuse_repeat(values: Iterable[tuple[str, str]], label: str) -> None:
    seen: dict[str, str] = {}
    for value, place in values:
        if value in seen:
            raise ConfigError(
                f"{label}: [[node]] {place}: {value} is already used by [[node]] {seen[value]}"
            )
        seen[value] = place


def _addresses_of(node: NodeConfig) -> tuple[tuple[str, Address], ...]:
    return (("client", node.client), ("peer", node.peer), ("http", node.http))


def _loopback_node(name: str, base_port: int, data_dir: Path) -> NodeConfig:
    return NodeConfig(
        name=name,
        client=Address("127.0.0.1", base_port + 1),
        peer=Address("127.0.0.1", base_port + 2),
        http=Address("127.0.0.1", base_port + 3),
        data_dir=data_dir,
    )


def _relative(path: Path, folder: Path | None) -> str:
    if folder is not None and path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path)
