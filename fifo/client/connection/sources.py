"""Options from one source each: keywords, the query of a URL, a configuration file.

Owns how a source is read and checked, and how its errors name it. A source holds options of the
connection and defaults for consumers; what a higher source gives wins (`docs/client.md`). Must not
know URLs beyond their query, nor open a connection.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from fifo.client import backoff
from fifo.client.consuming import consume_options
from fifo.client.errors import InvalidArgument
from fifo.client.keywords import ConsumerDefaults
from fifo.client.option_values import from_text, to_wire, unknown
from fifo.words import connection_options, consumer_options
from fifo.words.options import Kind, Option

VARIABLE: Final = "FIFO_CONFIG"
"""The environment variable with the path of the configuration file."""

_CONNECTION: Final = connection_options.BY_NAME
_CONSUMER: Final = consumer_options.OF_ALL
_SECTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "connection": _CONNECTION,
    "consumer": _CONSUMER,
}


@dataclass(frozen=True, slots=True)
class Given:
    """The options that a source gives, checked; secrets are not shown."""

    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    consumer: ConsumerDefaults = field(default_factory=ConsumerDefaults, repr=False)

    def over(self, lower: Given) -> Given:
        """Both sources; this one wins."""
        replaced = _replaced_credentials(self.connection, lower.connection)
        kept = {name: value for name, value in lower.connection.items() if name not in replaced}
        consumer: ConsumerDefaults = {**lower.consumer, **self.consumer}
        return Given({**kept, **self.connection}, consumer)


NOTHING: Final = Given()


def _replaced_credentials(higher: Mapping[str, Any], lower: Mapping[str, Any]) -> set[str]:
    """The credentials of a lower source that a higher one makes void: a password goes with its own
    user, and a token with none."""
    if "token" in higher:
        return {"user", "password"}
    if "user" in higher and "user" in lower:
        return {"password", "token"}
    return {"token"} if "user" in higher or "password" in higher else set()


def from_keywords(keywords: Mapping[str, Any]) -> Given:
    """The keywords of `connect`."""
    return _checked(keywords.items(), "", "a connection")


def from_query(pairs: Iterable[tuple[str, str]]) -> Given:
    """The query of a URL."""
    found: dict[str, Any] = {}
    for name, text in pairs:
        option = _option(name, "url: ", "a connection")
        if option is _CONSUMER["nack_backoff"] and text.startswith(backoff.CALLABLE):
            raise InvalidArgument(
                f"url: {name}: a URL cannot name code to run; pass the callable to consume() or"
                f" connect(), or write {backoff.CALLABLE}module:name in the file of {VARIABLE}"
            )
        found[name] = from_text(option, text, f"url: {name}")
    return _checked(found.items(), "url: ", "a connection")


def from_environment() -> Given:
    """The configuration file that $FIFO_CONFIG names; nothing where it is unset or empty."""
    path = os.environ.get(VARIABLE)
    return from_file(Path(path)) if path else NOTHING


def from_file(path: Path) -> Given:
    """A configuration file: TOML with the sections [connection] and [consumer].

    Raises InvalidArgument that names the file, the key and the value.
    """
    found = NOTHING
    for section, values in _parsed(path).items():
        known = _SECTIONS.get(section)
        if known is None:
            raise _unknown_section(path, section)
        if not isinstance(values, dict):
            raise InvalidArgument(f"{path}: {section}: must be a section; write [{section}]")
        where = f"{path}: [{section}] "
        given: dict[str, Any] = {}
        for name, value in values.items():
            option = known.get(name)
            if option is None:
                raise _unknown_key(path, name, section)
            text = isinstance(value, str)
            given[name] = from_text(option, value, where + name) if text else value
        found = _checked(given.items(), where, section).over(found)
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"{VARIABLE}: {path} cannot be read: {error.strerror}; name a readable file, or unset"
            f" {VARIABLE}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: not a TOML file: {error}") from None


def _unknown_section(path: Path, section: str) -> InvalidArgument:
    for owner, known in _SECTIONS.items():
        if section in known:
            return InvalidArgument(f"{path}: {section}: belongs in the section [{owner}]")
    sections = " and ".join(f"[{name}]" for name in _SECTIONS)
    return InvalidArgument(f"{path}: {section[:40]}: is no section; there are {sections}")


def _unknown_key(path: Path, name: str, section: str) -> InvalidArgument:
    for owner, known in _SECTIONS.items():
        if name in known:
            return InvalidArgument(f"{path}: [{section}] {name}: belongs in the section [{owner}]")
    return unknown(name, _SECTIONS[section], f"the section [{section}]", f"{path}: ")


def _option(name: str, where: str, owner: str) -> Option:
    option = _CONNECTION.get(name) or _CONSUMER.get(name)
    if option is None:
        raise unknown(name, [*_CONNECTION, *_CONSUMER], owner, where)
    return option


def _checked(given: Iterable[tuple[str, Any]], where: str, owner: str) -> Given:
    connection: dict[str, Any] = {}
    consumer: dict[str, Any] = {}
    for name, value in given:
        option = _option(name, where, owner)
        if name in _CONNECTION:
            connection[name] = _of_connection(option, value, where + name)
        else:
            consume_options.check(name, value, where + name)
            consumer[name] = value
    return Given(connection, cast("ConsumerDefaults", consumer))


def _of_connection(option: Option, value: Any, what: str) -> Any:
    """An option of the connection as `Options` holds it: seconds, a backoff, or what it is."""
    checked = to_wire(option, value, what)
    if option.kind is Kind.DURATION:
        return checked / 1000
    return backoff.parse(checked) if option.kind is Kind.BACKOFF else checked
