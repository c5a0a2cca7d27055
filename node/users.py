"""Users and their permissions: the `[[user]]` sections of a cluster.toml.

Owns the keys of that section and the meaning of a grant: nothing is allowed that no pattern names.
Must not know connections or requests; how a secret is hashed is `credentials.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from node.credentials import PasswordHash, TokenHash, parse_password_hash, parse_token_hash
from node.table import Table, quoted

T = TypeVar("T")

USERS_MAX: Final = 1_000
"""A token without a name is looked for among all users."""

PATTERNS_MAX: Final = 100
"""Queue patterns of one permission of one user."""

PATTERN_BYTES_MAX: Final = 255
"""As long as the name of a queue."""


SUBJECTS_MAX: Final = 16
"""Certificate subjects of one user: one for each place that a program runs at."""


class Permission(StrEnum):
    """A permission on queues."""

    DECLARE = "declare"
    PUBLISH = "publish"
    CONSUME = "consume"
    MANAGE = "manage"


class Quota(StrEnum):
    """A pool of which a user has a share: the keys of a `[[user]]` section that set it."""

    CONNECTIONS = "connections"
    SESSIONS = "sessions"
    PRODUCERS = "producers"
    QUEUES = "queues"
    CONSUMERS = "consumers"
    STORED_BYTES = "stored_bytes"
    REQUESTS_PER_S = "requests_per_s"
    BYTES_PER_S = "bytes_per_s"


SHARE_BOUNDS: Final = (0, 1 << 50)
"""Of any share: 0 is a user who may have none."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a user: its name, its hash, and the wall time of its end, or None."""

    name: str
    hash: TokenHash = field(repr=False)
    ends_ms: int | None = None


FILE_TOKEN: Final = "token"
"""The name of the token that `token_hash` in a file is of."""


@dataclass(frozen=True, slots=True)
class User:
    """A user. Patterns are those of a shell: `*`, `?` and `[abc]`.

    `loopback`: who connects from this machine without credentials is this user. `monitor` may see
    the state of the nodes, `operate` may change which of them leads, too. `shares`: the quotas that
    are set; of all others a user may have half. `subjects`: of the certificates that prove it.
    """

    name: str
    password: PasswordHash | None = field(default=None, repr=False)
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    loopback: bool = False
    monitor: bool = False
    operate: bool = False
    declare: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    manage: tuple[str, ...] = ()
    shares: tuple[tuple[Quota, int], ...] = ()
    subjects: tuple[str, ...] = ()

    @property
    def can_connect(self) -> bool:
        """Whether there is a way to be this user."""
        return bool(self.password or self.tokens or self.subjects or self.loopback)

    @property
    def may_anything(self) -> bool:
        """Whether there is anything that the user may do."""
        granted = any(getattr(self, permission) for permission in Permission)
        return granted or self.monitor or self.operate

    def may(self, permission: Permission, queue: str) -> bool:
        """Whether one of the patterns of this permission fits the queue's name."""
        patterns: tuple[str, ...] = getattr(self, permission)
        return any(fnmatchcase(queue, pattern) for pattern in patterns)


def read_users(tables: Sequence[Table]) -> tuple[User, ...]:
    """All users of a file; raises ConfigError naming the section and the key."""
    users: dict[str, User] = {}
    without_credentials: str | None = None
    for table in tables:
        user = _read_user(table)
        if user.name in users:
            raise table.error("name", f"{user.name} is already used by another user")
        if user.loopback and without_credentials is not None:
            raise table.error(
                "loopback", f"{without_credentials} already has it: only one user may"
            )
        if user.loopback:
            without_credentials = user.name
        users[user.name] = user
    if len(users) > USERS_MAX:
        raise tables[-1].error("name", f"{len(users)} [[user]] sections; {USERS_MAX} at most")
    return tuple(users.values())


def read_grants(table: Table, user: User) -> User:
    """The user with what these keys grant: permissions on queues, powers, shares of quotas."""
    patterns = {
        permission: table.texts(permission, PATTERNS_MAX, PATTERN_BYTES_MAX)
        for permission in Permission
    }
    shares = {quota: table.optional_integer(quota, SHARE_BOUNDS) for quota in Quota}
    return replace(
        user,
        monitor=table.flag("monitor"),
        operate=table.flag("operate"),
        declare=patterns[Permission.DECLARE],
        publish=patterns[Permission.PUBLISH],
        consume=patterns[Permission.CONSUME],
        manage=patterns[Permission.MANAGE],
        shares=tuple((quota, share) for quota, share in shares.items() if share is not None),
    )


def _read_user(table: Table) -> User:
    token = _hash(table, "token_hash", parse_token_hash)
    user = User(
        name=table.name("name"),
        password=_hash(table, "password_hash", parse_password_hash),
        tokens=() if token is None else (Token(FILE_TOKEN, token),),
        loopback=table.flag("loopback"),
        subjects=table.texts("subjects", SUBJECTS_MAX, PATTERN_BYTES_MAX),
    )
    user = read_grants(table, user)
    table.finish()
    if not user.can_connect:
        raise table.error(
            "name",
            f"{user.name} can never connect: give it password_hash (`fifo user hash`),"
            " token_hash (`fifo user token`), subjects (client certificates) or loopback = true",
        )
    return user


def user_lines(user: User) -> list[str]:
    """The keys of a `[[user]]` section that `read_users` reads back as this user."""
    lines = [f"name = {quoted(user.name)}"]
    token = next((one.hash for one in user.tokens), None)
    lines += [
        f"{key} = {quoted(str(value))}"
        for key, value in (("password_hash", user.password), ("token_hash", token))
        if value is not None
    ]
    if user.loopback:
        lines.append("loopback = true")
    lines += grant_lines(user)
    if user.subjects:
        lines.append(f"subjects = [{', '.join(map(quoted, user.subjects))}]")
    return lines


def grant_lines(user: User) -> list[str]:
    """The keys that `read_grants` reads back."""
    lines = [f"{key} = true" for key in ("monitor", "operate") if getattr(user, key)]
    for permission in Permission:
        patterns: tuple[str, ...] = getattr(user, permission)
        if patterns:
            lines.append(f"{permission} = [{', '.join(map(quoted, patterns))}]")
    return [*lines, *(f"{quota} = {share}" for quota, share in user.shares)]


def _hash(table: Table, key: str, parse: Callable[[str], T]) -> T | None:
    text = table.optional_text(key)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise table.error(key, str(error)) from None
