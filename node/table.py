"""Reading one TOML file key by key: checked values, and errors that name file, section and key.

Owns the wording of these errors and the rule that an unknown key is never ignored. Must not know
which keys there are: `config.py` and `users.py` do.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG_BYTES_MAX: Final = 1 << 20
"""A larger file is not a cluster.toml, and is refused before it is parsed."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class ConfigError(ValueError):
    """The configuration cannot be used. One line: file, section, key, what is wrong."""


class Table:
    """A TOML table being read: returns checked values, and refuses unknown keys."""

    def __init__(self, values: Mapping[str, object], label: str, section: str) -> None:
        self._values = dict(values)
        self._label = label
        self._section = section
        self._known: list[str] = []

    def error(self, key: str, problem: str) -> ConfigError:
        """A ConfigError that names file, section and key."""
        place = f"{self._section} {key}".strip()
        return ConfigError(f"{self._label}: {place}: {problem}")

    def pop(self, key: str) -> object | None:
        """The raw value, or None where the key is missing; marks the key as known."""
        self._known.append(key)
        return self._values.pop(key, None)

    def optional_text(self, key: str) -> str | None:
        """A text, or None where the key is missing."""
        value = self.pop(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.error(key, f"must be a quoted string, not {kind_of(value)}")
        if not value.strip() or "\0" in value:
            raise self.error(key, "must not be empty")
        return value

    def text(self, key: str) -> str:
        """A text that must be there."""
        value = self.optional_text(key)
        if value is None:
            raise self.error(key, "is missing")
        return value

    def name(self, key: str) -> str:
        """A name of a cluster, node or user."""
        value = self.text(key)
        if not is_name(value):
            allowed = "1 to 64 letters, digits, '-', '_' and '.', beginning with a letter or digit"
            raise self.error(key, f"{value!r} is not a name: {allowed}")
        return value

    def flag(self, key: str) -> bool:
        """A yes or no, no where it is missing."""
        value = self.pop(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {kind_of(value)}")
        return value

    def texts(self, key: str, items_max: int, bytes_max: int) -> tuple[str, ...]:
        """A list of texts, empty where it is missing."""
        value = self.pop(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, 'must be a list of strings, as in ["orders", "billing.*"]')
        if len(value) > items_max:
            raise self.error(key, f"has {len(value)} strings, at most {items_max} allowed")
        for item in value:
            if not 1 <= len(item.encode()) <= bytes_max or "\0" in item:
                raise self.error(key, f"{item[:40]!r} must be 1 to {bytes_max} bytes long")
        return tuple(value)

    def integer(self, key: str, default: int, bounds: tuple[int, int]) -> int:
        """A whole number within bounds, both included."""
        value = self.optional_integer(key, bounds)
        return default if value is None else value

    def optional_integer(self, key: str, bounds: tuple[int, int]) -> int | None:
        """The same, or None where the key is missing."""
        value = self.pop(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {kind_of(value)}")
        low, high = bounds
        if not low <= value <= high:
            raise self.error(key, f"{value} is out of range: from {low} to {high}")
        return value

    def table(self, key: str, *, required: bool = True) -> Table:
        """The section [key]; an empty one where it is missing and may be."""
        value = self.pop(key)
        if value is None and required:
            raise ConfigError(f"{self._label}: the section [{key}] is missing")
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, f"must be a section [{key}], not {kind_of(value)}")
        return Table(value, self._label, f"[{key}]")

    def tables(self, key: str, *, required: bool = True) -> list[Table]:
        """The [[key]] sections in the order of the file."""
        value = self.pop(key)
        if value is None and not required:
            return []
        if value is None or value == []:
            near = difflib.get_close_matches(key, self._values, 1)
            hint = f"; did you mean it by {near[0]}?" if near else ""
            raise ConfigError(f"{self._label}: there is no [[{key}]]; at least one is needed{hint}")
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"must be written as [[{key}]] sections")
        name = f"{self._section.strip('[]')}.{key}" if self._section else key
        return [Table(item, self._label, f"[[{name}]] {i + 1}") for i, item in enumerate(value)]

    def finish(self) -> None:
        """Refuse what is left: a misspelt key must not silently mean its default."""
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._known)}"
            raise self.error(key, f"unknown key; {hint}")


def is_name(text: str) -> bool:
    """Whether this can be the name of a cluster, node or user."""
    return _NAME.fullmatch(text) is not None


def read_toml(path: Path, label: str) -> dict[str, object]:
    """A TOML file as plain data; raises ConfigError, which names it by `label`."""
    try:
        with path.open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
        if len(raw) > CONFIG_BYTES_MAX:
            raise ConfigError(f"{label}: larger than {CONFIG_BYTES_MAX} bytes")
        return tomllib.loads(raw.decode())
    except FileNotFoundError:
        raise ConfigError(f"{label}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{label}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label}: not UTF-8 text (at byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{label}: not valid TOML: {error}") from None


def label_of(path: Path | None) -> str:
    """The name of a configuration in errors."""
    return "configuration" if path is None else str(path)


def kind_of(value: object) -> str:
    """The kind of a TOML value, in a user's words."""
    names: dict[type, str] = {
        bool: "a boolean",
        int: "a number",
        float: "a number with a fraction",
        str: "a string",
        list: "a list",
        dict: "a section",
    }
    return names.get(type(value), type(value).__name__)


def quoted(text: str) -> str:
    """A text as a TOML file has it."""
    # JSON strings are TOML basic strings, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
