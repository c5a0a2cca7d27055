"""Users of the log and of files: one form made of the other, and changes of a user checked.

Owns what the values of a change may be, in words for people: the machine checks shape and size, and
knows no hash of a password and no quota. Must not know connections or who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fifo.machine.contract import Machine, UserRecord
from node.credentials import KEY_BYTES, PasswordHash, TokenHash, parse_password_hash
from node.table import is_name
from node.users import Permission, Quota, Token, User

Fields = dict[str, Any]


def users_of(machine: Machine) -> list[User]:
    """The users of the log."""
    return [_user_of(name, record) for name, record in machine.users().items()]


def _user_of(name: str, record: UserRecord) -> User:
    return User(
        name,
        None if record.password is None else parse_password_hash(record.password),
        tuple(
            Token(token.name, TokenHash(token.digest), token.ends_ms or None)
            for token in record.tokens
        ),
        loopback=record.loopback,
        monitor=record.monitor,
        operate=record.operate,
        declare=record.declare,
        publish=record.publish,
        consume=record.consume,
        manage=record.manage,
        shares=tuple((Quota(quota), share) for quota, share in record.shares),
        subjects=record.subjects,
    )


def fields_of(user: User) -> Fields:
    """The fields of a user of a file, as the log keeps them."""
    found: Fields = {
        "tokens": tuple((one.name, one.hash.digest, one.ends_ms or 0) for one in user.tokens),
        "subjects": user.subjects,
        "shares": tuple((str(quota), share) for quota, share in user.shares),
        **{key: getattr(user, key) for key in ("loopback", "monitor", "operate")},
        **{str(permission): getattr(user, permission) for permission in Permission},
    }
    if user.password is not None:
        found["password"] = str(user.password)
    return found


def fields_now(record: UserRecord) -> Fields:
    """The fields of a user of the log, to be changed."""
    return {key: value for key, value in record._asdict().items() if key != "revision"}


def shown(name: str, record: UserRecord) -> dict[str, Any]:
    """A user for operators: no hash is in it."""
    return {
        "name": name,
        "revision": record.revision,
        "password": record.password is not None,
        "tokens": [
            {"name": token.name, "ends_ms": token.ends_ms or None} for token in record.tokens
        ],
        "subjects": list(record.subjects),
        **{key: getattr(record, key) for key in ("loopback", "monitor", "operate")},
        **{str(one): list(getattr(record, one)) for one in Permission},
        "shares": dict(record.shares),
    }


# --- changes --------------------------------------------------------------------------------------


def changed(fields: Fields, values: Mapping[str, Any]) -> Fields:
    """The fields with these values. Raises ValueError, whose text names the value's key and never
    a secret."""
    found = dict(fields)
    for key, value in values.items():
        check = _VALUES.get(key)
        if check is None:
            raise ValueError(f"{key[:40]!r} is no property of a user; there are: {_KNOWN}")
        if key == "shares":
            found[key] = _shares(dict(found.get("shares", ())), value)
        elif key == "token":
            found = with_token(found, value if isinstance(value, dict) else {})
        else:
            found[key] = check(key, value)
    return found


def check_name(name: str | None) -> str:
    """The name of a new user. Raises ValueError."""
    if name is None or not is_name(name):
        allowed = "1 to 64 letters, digits, '-', '_' and '.', beginning with a letter or digit"
        raise ValueError(f"{name!r} is not a name: {allowed}")
    return name


def with_token(fields: Fields, values: Mapping[str, Any]) -> Fields:
    """The fields with one token more. Raises ValueError."""
    name, digest, ends_ms = _token_name(values), values.get("digest"), values.get("ends_ms", 0)
    if type(digest) is not bytes or len(digest) != KEY_BYTES:
        raise ValueError(f"digest: must be the {KEY_BYTES} bytes of the token's SHA-256")
    if type(ends_ms) is not int or ends_ms < 0:
        raise ValueError("ends_ms: must be a time in milliseconds since 1970, or 0 for no end")
    tokens = tuple(fields.get("tokens", ()))
    if any(one[0] == name for one in tokens):
        raise ValueError(f"there is a token {name!r} already: revoke it first, or choose a name")
    return {**fields, "tokens": (*tokens, (name, digest, ends_ms))}


def without_token(fields: Fields, values: Mapping[str, Any]) -> Fields:
    """The fields with one token less. Raises ValueError."""
    name, tokens = _token_name(values), tuple(fields.get("tokens", ()))
    left = tuple(one for one in tokens if one[0] != name)
    if len(left) == len(tokens):
        known = ", ".join(one[0] for one in tokens) or "none"
        raise ValueError(f"there is no token {name!r}; there are: {known}")
    return {**fields, "tokens": left}


def _token_name(values: Mapping[str, Any]) -> str:
    name = values.get("token")
    if type(name) is not str or not is_name(name):
        raise ValueError("token: must be a name of letters, digits, '-', '_' and '.'")
    return name


def _password(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise ValueError(f"{key}: must be a hash that `fifo user hash` prints")
    found: PasswordHash = parse_password_hash(value)
    return str(found)


def _flag(key: str, value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{key}: must be true or false")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if type(value) not in (list, tuple) or not all(type(one) is str and one for one in value):
        raise ValueError(f"{key}: must be a list of texts that are not empty")
    return tuple(value)


def _shares(shares: dict[str, int], value: Any) -> tuple[tuple[str, int], ...]:
    if type(value) is not dict:
        raise ValueError("shares: must be a map from quotas to numbers")
    for quota, share in value.items():
        if quota not in tuple(Quota):
            known = ", ".join(Quota)
            raise ValueError(f"shares: there is no quota {quota[:40]!r}; there are: {known}")
        if share is None:
            shares.pop(quota, None)
        elif type(share) is not int or share < 0:
            raise ValueError(f"shares: {quota} must be a whole number, or nothing for the default")
        else:
            shares[quota] = share
    return tuple(shares.items())


_VALUES: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "password": _password,
    **dict.fromkeys(("loopback", "monitor", "operate"), _flag),
    **{str(permission): _texts for permission in Permission},
    "subjects": _texts,
    "shares": lambda _, value: value,
    "token": lambda _, value: value,
}
_KNOWN: Final = ", ".join(_VALUES)
