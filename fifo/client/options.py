"""Where to connect and how: the URL, and the options in its query or as keywords.

Owns the list of options, their defaults and checks. Must not open anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    """Everything that a connection can be told. Times in seconds.

    `timeout`: of every call that says nothing else. `connect_timeout`: of the first connection.
    `heartbeat`: silence after which a side says something. `reconnect`: the pause between rounds
    over all nodes. `window_bytes`: published and unanswered before publishers wait.
    `auto_retry_acks`, `max_ack_retries` (None: until answered), `ack_retry_backoff`: of
    settlements (semantics.md 8).
    `close_timeout`: how long closing drains. `name`: what the node's lists show for this client.
    """

    addresses: tuple[str, ...]
    user: str | None = None
    password: str | None = None
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
        # The password stays out of logs.
        who = f"{self.user}@" if self.user else ""
        return f"<fifo options fifo://{who}{','.join(self.addresses)}>"


def from_url(url: str, keywords: Mapping[str, Any]) -> Options:
    """Options from a URL and keywords, which win; raises InvalidArgument naming what is wrong."""
    if not isinstance(url, str) or len(url) > limits.URL_CHARS_MAX:
        raise InvalidArgument("url: must be text such as fifo://127.0.0.1:7101,127.0.0.1:7111")
    parts = urlsplit(url)
    if parts.scheme == "fifos":
        raise InvalidArgument(
            "url: fifos:// needs TLS, which this version does not have yet; use fifo:// on a"
            " network that you trust"
        )
    if parts.scheme != "fifo":
        raise InvalidArgument(f"url: must begin with fifo://, not {url.split(':')[0][:20]!r}")
    if parts.path.strip("/"):
        raise InvalidArgument(f"url: {parts.path[:40]!r} after the hosts means nothing")
    credentials, at, hosts = parts.netloc.rpartition("@")
    options = Options(_addresses(hosts))
    if at:
        user, _, password = credentials.partition(":")
        options = replace(options, user=unquote(user), password=unquote(password))
    given: dict[str, Any] = {
        key: _from_text(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True)
    }
    given.update(keywords)
    checked = {key: _check(key, value) for key, value in given.items()}
    return replace(options, **checked)


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
