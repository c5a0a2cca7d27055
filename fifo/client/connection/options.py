"""Where to connect and how: the URL, and the options of every source together.

Owns `Options`, whose fields are the rows of `fifo.words.connection_options`, written out for static
typing, and their defaults as a client uses them. Must not open anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fifo.client import checks, limits
from fifo.client.backoff import Backoff, parse
from fifo.client.connection.sources import NOTHING, Given, from_query
from fifo.client.errors import ConnectionLost, InvalidArgument
from fifo.client.keywords import ConsumerDefaults
from fifo.words.connection_options import BY_NAME
from fifo.words.options import Kind


def _default(name: str) -> Any:
    """The default of an option as a client uses it: seconds, a backoff, or what it is."""
    option = BY_NAME[name]
    if option.kind is Kind.DURATION:
        return option.default / 1000
    return parse(option.default) if option.kind is Kind.BACKOFF else option.default


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a connection; what each means stands in `docs/client.md`. Times in seconds.

    `tls`: fifos://. `consumer`: the keywords that `client.consume` begins with.
    """

    addresses: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    timeout: float = _default("timeout")
    connect_timeout: float = _default("connect_timeout")
    heartbeat: float = _default("heartbeat")
    reconnect: Backoff = _default("reconnect")  # noqa: RUF009 - frozen
    window_bytes: int = _default("window_bytes")
    auto_retry_acks: bool = _default("auto_retry_acks")
    max_ack_retries: int | None = None
    ack_retry_backoff: Backoff = _default("ack_retry_backoff")  # noqa: RUF009 - frozen
    close_timeout: float = _default("close_timeout")
    name: str | None = None
    consumer: ConsumerDefaults = field(default_factory=ConsumerDefaults)

    def __repr__(self) -> str:
        # Secrets stay out of logs.
        return f"<fifo options {self.shown}>"

    @property
    def shown(self) -> str:
        """The URL without secrets and options, for people and logs."""
        who = f"{self.user}@" if self.user else ""
        return f"{'fifos' if self.tls else 'fifo'}://{who}{','.join(self.addresses)}"

    @property
    def has_secret(self) -> bool:
        """Whether there is a password or a token."""
        return self.token is not None or self.user is not None

    @property
    def renews_token(self) -> bool:
        """Whether each log-in has a token of its own, so that one that has ended is no end."""
        return callable(self.token)

    async def proof(self) -> tuple[str | None, bytes]:
        """The mechanism and the secret of a log-in; (None, b"") without credentials.

        A callable is asked on a thread: it may ask an identity provider. Raises ConnectionLost
        where it fails, for it may not the next time.
        """
        token = self.token
        if callable(token):
            token = await _asked(token)
        if token is not None:
            return "jwt" if is_jwt(token) else "token", token.encode()
        return None if self.user is None else "password", (self.password or "").encode()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Make the TLS context, with hostname check; None without TLS.

        Raises InvalidArgument where `ca`, `cert` or `key` cannot be used.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise InvalidArgument(f"ca: {self.ca} cannot be used: {error.strerror}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password=lambda: "")
            except OSError as error:
                raise InvalidArgument(
                    f"cert: {self.cert} cannot be used with key {self.key or self.cert}:"
                    " an unencrypted PEM certificate and its key are needed"
                ) from error
        return context


def is_jwt(token: str) -> bool:
    """Whether this has the form of a token of an identity provider: three parts, of which the first
    is a JSON object in base64."""
    return token.startswith("eyJ") and token.count(".") == 2


async def _asked(source: Callable[[], object]) -> str:
    try:
        found = await asyncio.to_thread(source)
    except Exception as error:
        raise ConnectionLost(f"token: the callable failed: {error!r}") from error
    try:
        return checks.secret(found, "token: what the callable returned")
    except InvalidArgument as error:
        raise ConnectionLost(str(error)) from None


def from_url(url: str, given: Given = NOTHING, defaults: Given = NOTHING) -> Options:
    """Options from a URL, from what is `given`, which wins, and from `defaults`, which lose.

    Raises InvalidArgument naming what is wrong.
    """
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
    addresses = _addresses(hosts)
    query = parse_qsl(parts.query, keep_blank_values=True)
    user, colon, password = credentials.partition(":")
    if colon:
        query.insert(0, ("password", unquote(password)))
    if at:
        query.insert(0, ("user", unquote(user)))
    found = given.over(from_query(query)).over(defaults)
    tls = parts.scheme == "fifos"
    return _consistent(Options(addresses, tls=tls, consumer=found.consumer, **found.connection))


def _consistent(options: Options) -> Options:
    """Credentials are complete, and one kind; raises InvalidArgument."""
    if options.token is not None and options.password is not None:
        raise InvalidArgument("token: give a token or a password, not both")
    if options.token is None and (not options.user) != (not options.password):
        raise InvalidArgument("user: a user and a password belong together: fifo://user:password@")
    if options.ca is not None and not options.tls:
        raise InvalidArgument("ca: has an effect only with fifos://; remove it, or use fifos://")
    if options.cert is not None and not options.tls:
        raise InvalidArgument("cert: has an effect only with fifos://; remove it, or use fifos://")
    if options.key is not None and options.cert is None:
        raise InvalidArgument("key: is the key of a cert: give both, or neither")
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
