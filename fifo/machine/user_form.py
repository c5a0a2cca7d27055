"""Users as the log keeps them: the form of their fields, and the record of the state.

Owns shape, range and size. What a permission or a share means is the node's, which compares secrets
too: the machine sees hashes alone, and looks at `operate` only. Must not know state or commands.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fifo.machine import limits, validators
from fifo.machine.validators import Checker, integer, optional, record, sequence, text


class TokenRecord(NamedTuple):
    """A token of a user: its name, the SHA-256 of its text, and the wall time of its end, or 0."""

    name: str
    digest: bytes
    ends_ms: int


class UserRecord(NamedTuple):
    """A user. `revision`: of the change that made it so. `subjects`: of its certificates."""

    revision: int
    password: str | None
    tokens: tuple[TokenRecord, ...]
    subjects: tuple[str, ...]
    loopback: bool
    monitor: bool
    operate: bool
    declare: tuple[str, ...]
    publish: tuple[str, ...]
    consume: tuple[str, ...]
    manage: tuple[str, ...]
    shares: tuple[tuple[str, int], ...]

    @property
    def can_connect(self) -> bool:
        """Whether there is a way to be this user."""
        return bool(self.password or self.tokens or self.subjects or self.loopback)


_pattern = text(limits.USER_PATTERN_BYTES, empty=False)
_patterns = sequence(_pattern, limits.USER_PATTERNS)
_token_name = validators.without_controls(text(limits.TOKEN_NAME_BYTES, empty=False))

_FORMS: Final[Mapping[str, Checker]] = {
    "password": optional(text(limits.USER_HASH_BYTES, empty=False)),
    "tokens": sequence(
        record(_token_name, validators.raw(32), validators.natural), limits.USER_TOKENS
    ),
    "subjects": sequence(text(limits.USER_SUBJECT_BYTES, empty=False), limits.USER_TOKENS),
    "loopback": validators.flag,
    "monitor": validators.flag,
    "operate": validators.flag,
    "declare": _patterns,
    "publish": _patterns,
    "consume": _patterns,
    "manage": _patterns,
    "shares": sequence(
        record(text(limits.TOKEN_NAME_BYTES, empty=False), integer(0, limits.USER_SHARE)),
        limits.USER_SHARES,
    ),
}

_NOTHING: Final[Mapping[str, Any]] = {
    "password": None,
    **dict.fromkeys(("loopback", "monitor", "operate"), False),
}


def fields(value: Any) -> dict[str, Any]:
    """The fields of a user, checked; what is left out has its default. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError("not a table of a user's fields")
    found: dict[str, Any] = {}
    for key, given in value.items():
        check = _FORMS.get(key) if type(key) is str else None
        if check is None:
            raise ValueError(f"{str(key)[:40]}: unknown field of a user")
        try:
            found[key] = check(given)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    for key in ("tokens", "shares"):
        names = [one[0] for one in found.get(key, ())]
        if len(dict.fromkeys(names)) != len(names):
            raise ValueError(f"{key}: a name is used twice")
    size = sum([_size(one) for one in found.values()])
    if size > limits.USER_BYTES:
        raise ValueError(f"{size} bytes of a user's fields, at most {limits.USER_BYTES}")
    return found


def everyone(value: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The (name, fields) of all users of a file. Raises `ValueError`."""
    found: tuple[tuple[str, dict[str, Any]], ...] = _everyone(value)
    size = sum([_size(one) for _, given in found for one in given.values()])
    if size > limits.IMPORT_BYTES:
        raise ValueError(f"{size} bytes of users, at most {limits.IMPORT_BYTES} in one import")
    return found


_everyone = sequence(record(validators.new_name, fields), limits.USERS)


def _size(value: Any) -> int:
    if type(value) is tuple:
        return sum([_size(one) for one in value])
    if type(value) is str:
        return len(value.encode())
    return len(value) if type(value) is bytes else 8


def record_of(revision: int, given: Mapping[str, Any]) -> UserRecord:
    """The record of checked fields."""
    values = {key: given.get(key, _NOTHING.get(key, ())) for key in _FORMS}
    values["tokens"] = tuple(TokenRecord(*one) for one in values["tokens"])
    return UserRecord(revision, **values)


def read(row: list[Any]) -> UserRecord:
    """The record that a snapshot holds as lists."""
    revision, *values = row
    return record_of(revision, fields(dict(zip(_FORMS, values, strict=True))))
