"""Tokens of an identity provider (JWT): the section `[jwt]` of a cluster.toml.

Owns its keys: where the provider's public keys are, whom a token has to be of and for, and what the
groups that it names may do. Must not know connections, nor how a token is verified.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from node.table import Table, quoted
from node.users import User, grant_lines, read_grants

GROUPS_MAX: Final = 1_000
"""As many as users: each is looked for in the claim of a token."""

TEXT_BYTES_MAX: Final = 1_024
"""An issuer, an audience, a group or the address of keys: as long as an address may usefully be."""

USER_DEFAULT: Final = "sub"
CLAIM_DEFAULT: Final = "groups"


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """The section `[jwt]`. `user` and `claim` name the claims with the user and with its groups.

    `groups`: users whose names are those of groups, with what a member of the group may do.
    """

    folder: Path
    keys: str
    issuer: str
    audience: str
    user: str = USER_DEFAULT
    claim: str = CLAIM_DEFAULT
    ca: str | None = None
    groups: tuple[User, ...] = ()

    @property
    def is_url(self) -> bool:
        """Whether the keys are fetched, and not read from a file."""
        return "://" in self.keys

    @property
    def path(self) -> Path:
        """The file of the keys, where they are in one."""
        return self.folder / self.keys

    @property
    def ca_path(self) -> Path | None:
        """The authorities that the provider's certificate is checked with; None: the system's."""
        return None if self.ca is None else self.folder / self.ca


def read_jwt(table: Table | None, folder: Path) -> JwtSettings | None:
    """The section; None where there is none. Raises ConfigError naming the section and the key."""
    if table is None:
        return None
    texts = {key: _short(table, key) for key in ("keys", "issuer", "audience")}
    groups = tuple(_read_group(one) for one in table.tables("group", required=False))
    found = JwtSettings(
        folder,
        **{key: value for key, value in texts.items() if value is not None},
        user=_short(table, "user", USER_DEFAULT),
        claim=_short(table, "claim", CLAIM_DEFAULT),
        ca=table.optional_text("ca"),
        groups=groups,
    )
    table.finish()
    if found.is_url:
        _check_url(table, found.keys)
    if found.ca is not None and not found.keys.startswith("https://"):
        raise table.error("ca", "has an effect only where keys is an https address")
    if not groups:
        text = "is missing: add [[jwt.group]] sections with what the members of a group may do"
        raise table.error("group", text)
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise table.error("group", f"{name!r} has {names.count(name)} sections: write one")
    if len(groups) > GROUPS_MAX:
        raise table.error("group", f"{len(groups)} sections; {GROUPS_MAX} at most")
    return found


def _short(table: Table, key: str, default: str | None = None) -> str:
    value = table.text(key) if default is None else table.optional_text(key) or default
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise table.error(key, f"has {len(value.encode())} bytes, at most {TEXT_BYTES_MAX}")
    return value


def _check_url(table: Table, url: str) -> None:
    """Keys that are fetched in plain text could be anyone's."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise table.error("keys", f"{url!r} is no address: write https://HOST/PATH") from None
    host = parts.hostname or ""
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise table.error("keys", f"{url!r} is no address of keys: write https://HOST/PATH")
    if parts.username is not None or parts.fragment:
        raise table.error("keys", "must be an address without a user and without a fragment")
    if parts.scheme == "http" and not _is_here(host):
        raise table.error("keys", f"{url!r} is not encrypted: who is on the way could give keys")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_group(table: Table) -> User:
    group = read_grants(table, User(_short(table, "name")))
    table.finish()
    if not group.may_anything:
        raise table.error(
            "name", f"{group.name}: grants nothing: give it a permission, or leave it"
        )
    return group


def member_of(name: str, groups: tuple[User, ...]) -> User:
    """The user who is in these groups: it may do what any of them may, and has the larger share."""
    user = User(name)
    for group in groups:
        shares = dict(user.shares)
        for quota, share in group.shares:
            shares[quota] = max(share, shares.get(quota, 0))
        user = replace(
            user,
            monitor=user.monitor or group.monitor,
            operate=user.operate or group.operate,
            declare=_both(user.declare, group.declare),
            publish=_both(user.publish, group.publish),
            consume=_both(user.consume, group.consume),
            manage=_both(user.manage, group.manage),
            shares=tuple(shares.items()),
        )
    return user


def _both(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*some, *others]))


def jwt_lines(settings: JwtSettings) -> list[str]:
    """The sections that `read_jwt` reads back."""
    lines = [
        f"{key} = {quoted(value)}"
        for key in ("keys", "issuer", "audience", "user", "claim", "ca")
        if (value := getattr(settings, key)) is not None
    ]
    for group in settings.groups:
        lines += ["", "[[jwt.group]]", f"name = {quoted(group.name)}", *grant_lines(group)]
    return ["", "[jwt]", *lines]
