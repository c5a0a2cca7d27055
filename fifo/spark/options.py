"""The options of `format("fifo")`: which there are for what, and what they may be.

Owns names, defaults and checks, and the words for a name that does not exist. Must not connect.
Update with it: the table in `docs/spark.md`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import fifo
from fifo.client import durations, from_url
from fifo.spark import columns, limits
from fifo.spark.bodies import typed

URL_VARIABLE: Final = "FIFO_URL"
"""The environment variable of the driver that has the url where no option has."""

TABLES: Final = ("queues", "consumers", "locks", "delayed", "dead_letters")

BATCH_READ: Final = "a batch read"
STREAM_READ: Final = "a streaming read"
BATCH_WRITE: Final = "a batch write"
STREAM_WRITE: Final = "a streaming write"

MANUAL: Final = "manual"
NOTHING: Final = "none"
ACK_MODES: Final = (NOTHING, MANUAL)
STATES: Final = ("ready", "locked", "delayed", "dead")

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Options as the rest of the room uses them; None where nothing was said. Pickled to tasks."""

    url: str
    queue: str = ""
    partitions_given: int | None = None
    table: str | None = None
    state: str | None = None
    ack_mode: str | None = None
    reservation: str | None = None
    max_messages: int | None = None
    max_rows: int = limits.MAX_ROWS_PER_TRIGGER
    max_bytes: int = limits.MAX_BYTES_PER_TRIGGER
    lock_s: float | None = None
    max_lock_s: float | None = None
    fail_on_data_loss: bool = True
    key_runs: bool = False
    binary_keys: bool = False
    columns: tuple[str, ...] | None = None
    job: str | None = None
    id_column: str | None = None
    report_queue: str | None = None
    body: typed.Body | None = None

    def __repr__(self) -> str:
        # The url holds a password.
        return f"<fifo settings, queue {self.queue!r}>"

    @property
    def partitions(self) -> int:
        """Tasks of what is taken."""
        return self.partitions_given or 1

    def where(self) -> str:
        """The beginning of an error."""
        return f"queue {self.queue!r}" if self.queue else f"table {self.table}"


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: its name for users, its field, its check, and its uses."""

    name: str
    field: str
    check: Callable[[str, str], Any]
    uses: frozenset[str]


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def check(text: str, name: str) -> int:
        bare = text.strip()
        if not (bare.isascii() and bare.isdigit()) or not low <= int(bare[:20]) <= high:
            raise fifo.InvalidArgument(
                f"option {name}: must be a whole number from {low} to {high}, not {text[:40]!r}"
            )
        return int(bare)

    return check


_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def _bytes(text: str, name: str) -> int:
    bare = text.strip().lower().removesuffix("b").removesuffix("i")
    number, unit = (bare[:-1], bare[-1:]) if bare[-1:] in _UNITS else (bare, "")
    if number.strip().isascii() and number.strip().isdigit() and len(number) < 20:
        found = int(number) * _UNITS[unit]
        if 1 <= found <= limits.BYTES_MAX:
            return found
    raise fifo.InvalidArgument(
        f"option {name}: must be bytes such as 1048576, 64m or 1g, not {text[:40]!r}"
    )


def _name(text: str, name: str) -> str:
    if not text or len(text.encode()) > 255:
        raise fifo.InvalidArgument(f"option {name}: must be 1 to 255 bytes of text")
    return text


def _secret(text: str, name: str) -> str:
    if not text:
        raise fifo.InvalidArgument(f"option {name}: is empty")
    return text


def _secret_in(path: str, name: str) -> str:
    """The first line of a file, read on the driver."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise fifo.InvalidArgument(
            f"option {name}: {path} cannot be read: {reason}; name a file on the driver"
        ) from None
    return _secret(lines[0] if lines else "", name)


def _bytes_in(path: str, name: str) -> bytes:
    """A file, read on the driver."""
    try:
        found = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fifo.InvalidArgument(
            f"option {name}: {path} cannot be read: {reason}; name a file on the driver"
        ) from None
    if len(found) > limits.SCHEMA_BYTES:
        raise fifo.InvalidArgument(
            f"option {name}: {path} has {len(found)} bytes; a schema has up to"
            f" {limits.SCHEMA_BYTES}"
        )
    return found


def _url(text: str, name: str) -> str:
    try:
        from_url(text)
    except fifo.InvalidArgument as error:
        raise fifo.InvalidArgument(f"option {name}: {error}") from None
    return text


def _boolean(text: str, name: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise fifo.InvalidArgument(f"option {name}: must be true or false, not {text[:40]!r}")
    return text.lower() in _TRUE


def _seconds(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        return durations.parse_ms(text, f"option {name}") / 1000


def _one_of(*words: str) -> Callable[[str, str], str]:
    def check(text: str, name: str) -> str:
        if text.lower() not in words:
            raise fifo.InvalidArgument(
                f"option {name}: must be one of {', '.join(words)}, not {text[:40]!r}"
            )
        return text.lower()

    return check


def _columns(text: str, name: str) -> tuple[str, ...]:
    found = tuple(part.strip().lower() for part in text.split(","))
    wrong = next((part for part in found if part not in columns.READ), None)
    if wrong is not None:
        close = difflib.get_close_matches(wrong, columns.READ, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(columns.READ)}"
        raise fifo.InvalidArgument(f"option {name}: there is no column {wrong[:40]!r}; {hint}")
    if len(set(found)) < len(found):
        raise fifo.InvalidArgument(f"option {name}: {text[:80]!r} names a column twice")
    return found


_READS: Final = frozenset({BATCH_READ, STREAM_READ})
_ALL: Final = _READS | {BATCH_WRITE, STREAM_WRITE}

_CREDENTIALS: Final = ("user", "password", "token", "password_file", "token_file")
_TLS: Final = ("ca", "cert", "key")
_OF_THE_URL: Final = (*_CREDENTIALS, *_TLS)
"""Fields that become part of the url."""

_OF_BODIES: Final = ("body_format", "body_schema", "body_file", "body_mode")
"""Fields that become one."""

OPTIONS: Final = (
    _Option("url", "url", _url, _ALL),
    _Option("queue", "queue", _name, _ALL),
    _Option("user", "user", _name, _ALL),
    _Option("password", "password", _secret, _ALL),
    _Option("token", "token", _secret, _ALL),
    _Option("passwordFile", "password_file", _secret_in, _ALL),
    _Option("tokenFile", "token_file", _secret_in, _ALL),
    _Option("ca", "ca", _name, _ALL),
    _Option("cert", "cert", _name, _ALL),
    _Option("key", "key", _name, _ALL),
    _Option("partitions", "partitions_given", _integer(1, limits.PARTITIONS_MAX), _READS),
    _Option("ackMode", "ack_mode", _one_of(*ACK_MODES), frozenset({BATCH_READ})),
    _Option("table", "table", _one_of(*TABLES), frozenset({BATCH_READ})),
    _Option("state", "state", _one_of(*STATES), frozenset({BATCH_READ})),
    _Option("reservation", "reservation", _name, _READS),
    _Option(
        "maxMessages",
        "max_messages",
        _integer(1, limits.MAX_MESSAGES),
        frozenset({BATCH_READ}),
    ),
    _Option(
        "maxRowsPerTrigger",
        "max_rows",
        _integer(1, limits.ROWS_MAX),
        frozenset({STREAM_READ}),
    ),
    _Option("maxBytesPerTrigger", "max_bytes", _bytes, frozenset({STREAM_READ})),
    _Option("lock", "lock_s", _seconds, _READS),
    _Option("maxLock", "max_lock_s", _seconds, _READS),
    _Option("keyRuns", "key_runs", _boolean, _READS),
    _Option("failOnDataLoss", "fail_on_data_loss", _boolean, frozenset({STREAM_READ})),
    _Option("binaryKeys", "binary_keys", _boolean, _READS),
    _Option("format", "body_format", _one_of(*typed.FORMATS), _ALL),
    _Option("bodySchema", "body_schema", _secret, _ALL),
    _Option("bodySchemaFile", "body_file", _bytes_in, _ALL),
    _Option("mode", "body_mode", _one_of(*typed.MODES), _ALL),
    _Option("columns", "columns", _columns, _READS),
    _Option("job", "job", _name, frozenset({BATCH_WRITE})),
    _Option("idColumn", "id_column", _name, frozenset({BATCH_WRITE, STREAM_WRITE})),
    _Option("reportQueue", "report_queue", _name, frozenset({BATCH_WRITE, STREAM_WRITE})),
)

_TWINS: Final = {
    "maxRowsPerTrigger": ("maxMessages",),
    "maxMessages": ("maxRowsPerTrigger",),
}
"""Similar options of other uses."""

_CATALOGS: Final = frozenset({"provider", "owner", "comment", "location", "external"})
"""Names that Spark's catalog adds to the options of a table."""

SPARKS_OWN: Final = frozenset({"checkpointlocation"})
"""Options that Spark passes to a sink, though they are not meant for it."""


def parse(given: Mapping[str, str], use: str) -> Settings:
    """The settings for one use. Raises InvalidArgument, in one line that names the option."""
    found = _checked(given, frozenset({use}))
    if "url" not in found and os.environ.get(URL_VARIABLE):
        found["url"] = _url(os.environ[URL_VARIABLE], URL_VARIABLE)
    for name in ("url", "queue"):
        if name not in found and not (name == "queue" and "table" in found):
            raise fifo.InvalidArgument(
                f'option {name} is missing: .option("{name}", ...); a table has options where it'
                " was created without a list of columns, and for reads alone: insert into a"
                " temporary view, or INSERT INTO t WITH (url = '...', queue = '...')"
            )
    found["url"] = _whole_url(found)
    joined = (*_OF_THE_URL, *_OF_BODIES)
    plain = {name: one for name, one in found.items() if name not in joined}
    settings = Settings(**plain, body=_body(found))
    if use == STREAM_READ:
        _needs_reservation(settings, "a stream needs it to find its messages again")
    elif use == BATCH_READ:
        _check_batch(settings, found)
    elif settings.job and settings.id_column:
        raise fifo.InvalidArgument(
            "option job numbers rows by their place, idColumn by their ids: leave one of them out"
        )
    return settings


def _body(found: Mapping[str, Any]) -> typed.Body | None:
    """The typed bodies, where there is the option format."""
    return typed.of_options(*(found.get(name) for name in _OF_BODIES))


def _whole_url(found: Mapping[str, Any]) -> str:
    """The url, with the user, the secrets and the files of the options."""
    url = _with_credentials(found)
    given = {name: found[name] for name in _TLS if found.get(name) is not None}
    if not given:
        return url
    parts = urlsplit(url)
    twice = given.keys() & {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if twice:
        raise fifo.InvalidArgument(f"option {min(twice)}: the url names it as well; give it once")
    files = [f"{name}={quote(path, safe='/')}" for name, path in given.items()]
    query = "&".join(filter(None, (parts.query, *files)))
    return _url(urlunsplit(parts._replace(query=query)), min(given))


def _with_credentials(found: Mapping[str, Any]) -> str:
    """The url, with the user and secrets of the options."""
    url: str = found["url"]
    user = found.get("user")
    password = found.get("password") or found.get("password_file")
    token = found.get("token") or found.get("token_file")
    if user is None and password is None and token is None:
        return url
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise fifo.InvalidArgument("option user: the url names a user as well; give it once")
    if (password is None) != (user is None):
        raise fifo.InvalidArgument("options user and password: each needs the other")
    if password is not None and token is not None:
        raise fifo.InvalidArgument("option token: takes the place of user and password")
    if token is not None:
        query = "&".join(filter(None, (parts.query, f"token={quote(token, safe='')}")))
        return urlunsplit(parts._replace(query=query))
    login = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}@"
    return urlunsplit(parts._replace(netloc=login + parts.netloc))


class Login(TypedDict, total=False):
    """Options of a connection, for the functions that take a url."""

    user: str
    password: str
    passwordFile: str
    token: str
    tokenFile: str
    ca: str
    cert: str
    key: str


LOGIN: Final = tuple(Login.__annotations__)


def with_login(url: str, login: Mapping[str, object]) -> str:
    """The url, with the options of a `Login` that are given. Raises InvalidArgument."""
    given = {name: str(text) for name, text in login.items() if text is not None}
    if not given:
        return url
    wrong = next((name for name in given if name not in LOGIN), None)
    if wrong is not None:
        raise fifo.InvalidArgument(
            f"there is no option {wrong[:40]!r} here; there are {', '.join(LOGIN)}"
        )
    return _whole_url(_checked({"url": url, **given}, _ALL))


def of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of `CREATE TABLE ... USING fifo`, checked; None where no table is created.

    Spark's catalog hands on what it has of its own, and every option twice. Secrets are refused:
    a catalog shows them to everyone.
    """
    plain = {name.lower(): text for name, text in given.items()}
    if "provider" not in plain:
        return None
    for name in _CATALOGS | {one for one in plain if one.startswith("option.")}:
        plain.pop(name, None)
    found = _checked(plain, _READS)
    for name in ("url", "queue"):
        if name not in found and not (name == "queue" and "table" in found):
            raise fifo.InvalidArgument(f"option {name} is missing: OPTIONS ({name} '...')")
    if {"password", "token"} & plain.keys() or "@" in urlsplit(plain["url"]).netloc:
        raise fifo.InvalidArgument(
            "a table's options are shown by its catalog: leave secrets to passwordFile or"
            " tokenFile, or to the file that FIFO_CONFIG names"
        )
    return plain


def fitting(given: Mapping[str, str], use: str) -> dict[str, str]:
    """The options of a table that are for this use."""
    names = {option.name.lower() for option in OPTIONS if use in option.uses}
    return {name: text for name, text in given.items() if name in names}


def binary_keys(given: Mapping[str, str]) -> bool:
    """Whether the column `key` is binary; it is asked for before it is known what is read how.

    Here and below options of writes are let pass: a view may be there to be inserted into.
    """
    return bool(_checked(given, _ALL).get("binary_keys", False))


def body(given: Mapping[str, str]) -> typed.Body | None:
    """The typed bodies of a read; asked for before it is known what is read how."""
    return _body(_checked(given, _ALL))


def columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """The columns that are read; asked for before it is known what is read how."""
    found: tuple[str, ...] | None = _checked(given, _ALL).get("columns")
    return found


def system_table(given: Mapping[str, str]) -> str | None:
    """The system table that is read, if any; asked for before it is known what is read how."""
    table: str | None = _checked(given, _ALL).get("table")
    return table


def _checked(given: Mapping[str, str], uses: frozenset[str]) -> dict[str, Any]:
    known = {option.name.lower(): option for option in OPTIONS if option.uses & uses}
    found: dict[str, Any] = {}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is not None:
            found[option.field] = option.check(text, option.name)
        elif name.lower() not in SPARKS_OWN:
            raise fifo.InvalidArgument(_unknown(name, uses))
    return found


def _unknown(name: str, uses: frozenset[str]) -> str:
    use = " or ".join(sorted(uses))
    fitting = [option.name for option in OPTIONS if option.uses & uses]
    close = difflib.get_close_matches(name.lower(), [one.lower() for one in fitting], 1)
    other = next((one for one in OPTIONS if one.name.lower() == name.lower()), None)
    if other is not None:
        close = [twin.lower() for twin in _TWINS.get(other.name, ()) if twin in fitting]
        text = f"option {other.name} is for {' or '.join(sorted(other.uses))}, not for {use}"
    else:
        text = f"there is no option {name[:60]!r}{'' if uses == _ALL else f' for {use}'}"
    if close:
        nearest = next(one for one in fitting if one.lower() == close[0])
        return f"{text}; did you mean {nearest}?"
    return f"{text}; there are {', '.join(fitting)}"


def _needs_reservation(settings: Settings, why: str) -> None:
    if settings.reservation is None:
        raise fifo.InvalidArgument(
            f'option reservation is missing: {why}; .option("reservation", "some-stable-name")'
        )


def _check_batch(settings: Settings, found: dict[str, Any]) -> None:
    if settings.ack_mode == MANUAL:
        _needs_reservation(settings, "ackMode=manual keeps what was read under this name")
        _at_most(settings, limits.ROWS_MAX)
        for field in ("table", "state"):
            if field in found:
                raise fifo.InvalidArgument(
                    f"option {field} is for reads that take nothing: leave ackMode out"
                )
        return
    for field, name in _TAKING.items():
        if field in found:
            raise fifo.InvalidArgument(
                f"option {name} has no effect on a read that takes nothing: use ackMode=manual"
            )
    if settings.table is not None:
        for field, name in _OF_MESSAGES.items():
            if field in found:
                raise fifo.InvalidArgument(f"option {name} has no effect with the option table")


_TAKING: Final = {
    "reservation": "reservation",
    "lock_s": "lock",
    "max_lock_s": "maxLock",
    "key_runs": "keyRuns",
}
"""Options of what takes messages: field and name."""

_OF_MESSAGES: Final = {
    "state": "state",
    "binary_keys": "binaryKeys",
    "columns": "columns",
    "max_messages": "maxMessages",
    "body_format": "format",
}
"""Options of what reads messages."""


def _at_most(settings: Settings, most: int) -> None:
    if (settings.max_messages or 0) > most:
        raise fifo.InvalidArgument(
            f"option maxMessages: at most {most} with ackMode={settings.ack_mode}"
        )
