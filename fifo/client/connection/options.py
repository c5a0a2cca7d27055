"""Where to connect and how: the URL, and the options in its query or as keywords.

Owns the list of options, their defaults and checks. Must not open anything.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from fifo.client import checks, limits
from fifo.client.backoff import Backoff, Exponential, parse
from fifo.client.durations import milliseconds, parse_ms, seconds
from fifo.client.errors import InvalidArgument
from fifo.wire import limits as wire

_FALSE: Final = frozenset({"0", "false", "no", "off"})
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_COUNT_MAX: Final = 2**31


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a connection. Times in seconds.

    `timeout`: of every call that says nothing else. `connect_timeout`: of the first connection.
    `heartbeat`: silence after which a side says something. `reconnect`: the pause between rounds
    over all nodes. `window_bytes`: published and unanswered before publishers wait.
    `auto_retry_acks`, `max_ack_retries` (None: until answered), `ack_retry_backoff`: of
    settlements (semantics.md 8).
    `close_timeout`: how long closing drains. `name`: what the node's lists show for this client.
    `user` and `password`, or `token`: credentials. `tls`: fifos://; `ca`: a PEM file with the
    authorities that sign the nodes' certificates (None: those of the system).
    """

    addresses: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    timeout: float = limits.CALL_TIMEOUT_S
    connect_timeout: float = limits.CONNECT_TIMEOUT_S
    heartbeat: float = wire.HEARTBEAT_MS / 1000
    reconnect: Backoff = Exponential(limits.REDIAL_MIN_S, limits.REDIAL_MAX_S)  # noqa: RUF009 - frozen
    window_bytes: int = limits.WINDOW_BYTES
    auto_retry_acks: bool = True
    max_ack_retries: int | None = None
    ack_retry_backoff: Backoff = Exponential(limits.RETRY_MIN_S, limits.RETRY_MAX_S)  # noqa: RUF009 - frozen
    close_timeout: float = limits.CLOSE_TIMEOUT_S
    name: str = ""

    def __repr__(self) -> str:
        # Secrets stay out of logs.
        return f"<fifo options {self.shown}>"

    @property
    def shown(self) -> str:
        """The URL without secrets and options, for people and logs."""
        who = f"{self.user}@" if self.user else ""
        return f"{'fifos' if self.tls else 'fifo'}://{who}{','.join(self.addresses)}"

    @property
    def mechanism(self) -> str | None:
        """The authentication mechanism; None without credentials."""
        if self.token is not None:
            return "token"
        return None if self.user is None else "password"

    @property
    def secret(self) -> bytes:
        """The password or token, encoded."""
        return (self.token or self.password or "").encode()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Make the TLS context, with hostname check; None without TLS.

        Raises InvalidArgument where `ca` cannot be used.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise InvalidArgument(f"ca: {self.ca} cannot be used: {error.strerror}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def from_url(url: str, keywords: Mapping[str, Any]) -> Options:
    """Options from a URL and keywords, which win; raises InvalidArgument naming what is wrong."""
    if not isinstance(url, str) or len(url) > limits.URL_CHARS_MAX:
        raise InvalidArgument("url: must be text such as fifo://127.0.0.1:7101,127.0.0.1:7111")
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        # Not shown: what was cut off may be half a password.
        raise InvalidArgument("url: write '@', '/', '?' and '#' in a secret as %40, %2F, %3F, %23")
    if parts.scheme not in ("fifo", "fifos"):
        raise InvalidArgument(
            f"url: must begin with fifo:// or fifos://, not {url.split(':')[0][:20]!r}"
        )
    credentials, at, hosts = parts.netloc.rpartition("@")
    if parts.path.strip("/"):
        raise InvalidArgument(f"url: {parts.path[:40]!r} after the hosts has no meaning; remove it")
    options = Options(_addresses(hosts), tls=parts.scheme == "fifos")
    if at:
        user, _, password = credentials.partition(":")
        options = replace(options, user=unquote(user), password=unquote(password))
    given: dict[str, Any] = {
        key: _from_text(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True)
    }
    given.update(keywords)
    checked = {key: _check(key, value) for key, value in given.items()}
    return _consistent(replace(options, **checked))


def _consistent(options: Options) -> Options:
    """Credentials are complete, and one kind; raises InvalidArgument."""
    if options.token is not None and options.password is not None:
        raise InvalidArgument("token: give a token or a password, not both")
    if options.token is None and (not options.user) != (not options.password):
        raise InvalidArgument("user: a user and a password belong together: fifo://user:password@")
    if options.ca is not None and not options.tls:
        raise InvalidArgument("ca: has an effect only with fifos://; remove it, or use fifos://")
    return options


def redacted(url: str) -> str:
    """A URL as it may be shown: without its password and options. Any text is taken."""
    scheme, mark, rest = url.partition("://")
    hosts = rest.rpartition("@")[2].partition("?")[0]
    user = rest.rpartition("@")[0].partition(":")[0]
    return f"{scheme}{mark}{user}@{hosts}" if "@" in rest else f"{scheme}{mark}{hosts}"


def _addresses(hosts: str) -> tuple[str, ...]:
    found: list[str] = []
    for host in hosts.split(","):
        host_name, port = split_address(host.strip())
        address = f"[{host_name}]:{port}" if ":" in host_name else f"{host_name}:{port}"
        if address not in found:
            found.append(address)
    if len(found) > limits.HOSTS_MAX:
        raise InvalidArgument(f"url: at most {limits.HOSTS_MAX} hosts")
    return tuple(found)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[::1]:port`; raises InvalidArgument."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"url: {address[:60]!r} is not host:port")
    if not 1 <= int(port) <= 65_535:
        raise InvalidArgument(f"url: port {port[:10]} is not from 1 to 65535")
    return host, int(port)


def _from_text(key: str, value: str) -> Any:
    """An option's value as it stands in a query, turned into what the keyword would be."""
    kind = _OPTIONS.get(key, (None, None))[0]
    if kind is bool:
        if value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise InvalidArgument(f"{key}: {value[:40]!r} is neither true nor false")
    if kind is int:
        if value.isascii() and value.isdigit() and len(value) < 20:
            return int(value)
        raise InvalidArgument(f"{key}: {value[:40]!r} is not a whole number")
    if kind is float:
        try:
            return float(value)
        except ValueError:
            return parse_ms(value, key) / 1000
    return value


def _check(key: str, value: Any) -> Any:
    if key not in _OPTIONS:
        raise InvalidArgument(
            f"{key[:40]}: there is no such option; there are {', '.join(_OPTIONS)}"
        )
    return _OPTIONS[key][1](value, key)


def _positive(value: Any, what: str) -> float:
    found = seconds(value, what)
    milliseconds(value, what, low_ms=1)
    return found


def _heartbeat(value: Any, what: str) -> float:
    return milliseconds(value, what, low_ms=100, high_ms=600_000) / 1000


def _backoff(value: Any, what: str) -> Backoff:
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, Backoff):
        return value
    raise InvalidArgument(f"{what}: must be a backoff such as exponential:50ms..1s*2")


def _maybe_count(value: Any, what: str) -> int | None:
    return None if value is None else checks.integer(value, what, 0, _COUNT_MAX)


def _window(value: Any, what: str) -> int:
    return checks.integer(value, what, wire.BODY_BYTES_MAX, _COUNT_MAX)


def _label(value: Any, what: str) -> str:
    return checks.name(value, what) if value else ""


def _credential(value: Any, what: str) -> str | None:
    return None if value is None else checks.name(value, what)


_OPTIONS: Final[dict[str, tuple[type, Callable[[Any, str], Any]]]] = {
    "user": (str, _credential),
    "password": (str, _credential),
    "token": (str, _credential),
    "ca": (str, _label),
    "timeout": (float, _positive),
    "connect_timeout": (float, _positive),
    "heartbeat": (float, _heartbeat),
    "reconnect": (str, _backoff),
    "window_bytes": (int, _window),
    "auto_retry_acks": (bool, checks.flag),
    "max_ack_retries": (int, _maybe_count),
    "ack_retry_backoff": (str, _backoff),
    "close_timeout": (float, _positive),
    "name": (str, _label),
}
