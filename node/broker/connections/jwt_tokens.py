"""Tokens of an identity provider: verified, and what their users may do.

Owns which token is believed, and for how long: until its end, until its key is withdrawn, until the
configuration gives its groups less. A verified one is remembered by its digest. Must not know
connections, nor where keys come from (`jwt_keys.py`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import jwt

from fifo.wire import Code
from fifo.words import names
from node.broker import limits
from node.broker.connections.jwt_keys import ALGORITHMS, Key, KeyRing
from node.broker.connections.verdicts import BUSY, Decide, Denied, Verdict
from node.broker.permissions import Rights, Signed
from node.identity import JwtSettings, member_of

USER_BYTES_MAX: Final = 255
"""The longest name of a user that the log takes."""

SECONDS_MAX: Final = 1 << 40
"""A later time is none."""

_UNTIMED: Final = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
"""Times are compared with the node's own clock."""


class Claims(NamedTuple):
    """The contents of a token: its user, all its groups, its end in milliseconds since 1970."""

    user: str
    groups: frozenset[str]
    ends_ms: int


class TokenRefused(Exception):
    """A token that is not believed; the text says why, and nothing that the token does not."""


class KeyUnknown(TokenRefused):
    """A token of a key that is not known yet."""


class Tokens:
    """Verifies tokens, on one node. `wall_ms`: the time, in milliseconds since 1970."""

    def __init__(self, settings: JwtSettings, keys: KeyRing, wall_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._wall_ms = wall_ms
        self._verified: dict[bytes, Rights] = {}
        self._users: dict[str, Rights] = {}
        self._revision = keys.revision
        self.keys = keys

    # --- log-ins ----------------------------------------------------------------------------------

    def check(self, secret: bytes, decide: Decide) -> None:
        """Call `decide` with the verdict, now or after a fetch of keys."""
        try:
            decide(self._verdict(secret))
        except KeyUnknown as unknown:
            if not self.keys.unknown(partial(self._again, secret, decide)):
                decide(self._without_key(unknown))
        except TokenRefused as refused:
            decide(Denied(Code.AUTHENTICATION_FAILED, str(refused)))

    def _again(self, secret: bytes, decide: Decide) -> None:
        """After a fetch of keys."""
        try:
            verdict = self._verdict(secret)
        except KeyUnknown as unknown:
            verdict = self._without_key(unknown)
        except TokenRefused as refused:
            verdict = Denied(Code.AUTHENTICATION_FAILED, str(refused))
        decide(verdict)

    def _without_key(self, unknown: KeyUnknown) -> Denied:
        if self.keys.problem is not None:
            text = f"{unknown}, whose keys this node could not read: retry shortly"
            return Denied(Code.OVERLOADED, text)
        return Denied(Code.AUTHENTICATION_FAILED, str(unknown)) if self.keys.keys else BUSY

    def _verdict(self, secret: bytes) -> Verdict:
        """Raises TokenRefused."""
        self._forget_withdrawn()
        digest = hashlib.sha256(secret).digest()
        known = self._verified.get(digest)
        if known is not None:
            return self._ended(known) or known
        claims, key = self._claims(secret)
        rights = self._rights(claims, key.digest)
        self._verified[digest] = rights
        if len(self._verified) > limits.JWT_VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        return rights

    def _forget_withdrawn(self) -> None:
        if self._revision != self.keys.revision:
            self._revision = self.keys.revision
            self._verified.clear()

    def _claims(self, secret: bytes) -> tuple[Claims, Key]:
        """Read the claims of a token whose signature is that of a key. Raises TokenRefused."""
        if len(secret) > limits.JWT_TOKEN_BYTES_MAX:
            text = f"a token has at most {limits.JWT_TOKEN_BYTES_MAX} bytes, not {len(secret)}"
            raise TokenRefused(text)
        try:
            header = jwt.get_unverified_header(secret)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefused("this is no token: its header cannot be read") from None
        key = self._key(header)
        try:
            found = jwt.decode(
                secret,
                key.public,
                algorithms=[key.algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={**_UNTIMED, "require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(self._why(error)) from None
        return self._read(found), key

    def _key(self, header: Mapping[str, Any]) -> Key:
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            text = f"the token is signed by {algorithm!r:.40}: use {', '.join(ALGORITHMS)}"
            raise TokenRefused(text)
        if "crit" in header:
            raise TokenRefused("the token's header has crit, and nothing in it is known here")
        if not (kid is None or isinstance(kid, str)):  # an older PyJWT lets it pass
            raise TokenRefused("this is no token: its header cannot be read")
        key = self.keys.find(kid, algorithm)
        if key is None:
            which = "names no key (kid)" if kid is None else f"names the key {kid!r:.80}"
            text = f"the token {which}, which is no {algorithm} key of the identity provider"
            raise KeyUnknown(text)
        return key

    def _why(self, error: Exception) -> str:
        """Words for people; the token itself is not shown."""
        reasons = {
            jwt.InvalidSignatureError: "the token's signature is wrong",
            jwt.InvalidAudienceError: f"the token is not for {self._settings.audience!r} (aud)",
            jwt.InvalidIssuerError: f"the token is not of {self._settings.issuer!r} (iss)",
        }
        for kind, text in reasons.items():
            if isinstance(error, kind):
                return text
        if isinstance(error, jwt.MissingRequiredClaimError):
            return f"the token has no claim {error.claim!r}"
        return "the token cannot be read"

    def _read(self, found: Mapping[str, Any]) -> Claims:
        """The claims of a token that is signed. Raises TokenRefused."""
        now_ms = self._wall_ms()
        ends_ms = _ms(found["exp"], "exp")
        begins_ms = _ms(found.get("nbf", 0), "nbf")
        if ends_ms + limits.JWT_LEEWAY_MS <= now_ms:
            raise TokenRefused("the token has ended (exp): ask for another one")
        if begins_ms - limits.JWT_LEEWAY_MS > now_ms:
            raise TokenRefused("the token is not valid yet (nbf): look at the clocks")
        user = found.get(self._settings.user)
        if not isinstance(user, str) or not _is_user(user):
            text = f"the token's claim {self._settings.user!r} is no name of a user"
            raise TokenRefused(text)
        return Claims(user, _groups(found, self._settings.claim), ends_ms)

    # --- rights -----------------------------------------------------------------------------------

    def _rights(self, claims: Claims, key: bytes) -> Rights:
        """The rights of a user by its groups. Raises TokenRefused."""
        groups = tuple(one for one in self._settings.groups if one.name in claims.groups)
        if not groups:
            text = f"user {claims.user} is in no group of [jwt]: it may do nothing here"
            raise TokenRefused(text)
        signed = Signed(claims.groups, claims.ends_ms, key, self._settings)
        rights = Rights(member_of(claims.user, groups), signed=signed)
        self._users.pop(claims.user, None)
        self._users[claims.user] = rights
        if len(self._users) > limits.JWT_USERS_MAX:
            del self._users[next(iter(self._users))]
        return rights

    def user(self, name: str) -> Rights | None:
        """The rights that a user had at its last log-in."""
        return self._users.get(name)

    def users(self) -> list[Rights]:
        """Those of all that are remembered."""
        return list(self._users.values())

    def renewed(self, rights: Rights, signed: Signed) -> Verdict:
        """The rights that a connection with these has from now on."""
        name = rights.user.name
        if not self.keys.holds(signed.key):
            text = f"the key of the token of user {name} was withdrawn: ask for another token"
            return Denied(Code.AUTHENTICATION_FAILED, text)
        ended = self._ended(rights)
        if ended is not None:
            return ended
        if signed.settings is self._settings:
            return rights
        try:
            return self._rights(Claims(name, signed.groups, signed.ends_ms), signed.key)
        except TokenRefused as refused:
            return Denied(Code.AUTHENTICATION_FAILED, str(refused))

    def believes(self, signed: Signed) -> bool:
        """Whether a token is still believed that was verified before."""
        now_ms = self._wall_ms()
        return self.keys.holds(signed.key) and signed.ends_ms + limits.JWT_LEEWAY_MS > now_ms

    def _ended(self, rights: Rights) -> Denied | None:
        signed = rights.signed
        if signed is None or signed.ends_ms + limits.JWT_LEEWAY_MS > self._wall_ms():
            return None
        text = f"the token of user {rights.user.name} has ended (exp): ask for another one"
        return Denied(Code.AUTHENTICATION_FAILED, text)


def _ms(value: Any, claim: str) -> int:
    """A time of a token in milliseconds. Raises TokenRefused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token's {claim} is no time")
    if not math.isfinite(value) or not 0 <= value < SECONDS_MAX:
        raise TokenRefused(f"the token's {claim} is no time")
    return int(value * 1000)


def _is_user(name: str) -> bool:
    """Whether a name can stand in the log and in logs; one with blanks is a sentence."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    refused = names.refused_character(name) is not None
    return 1 <= size <= USER_BYTES_MAX and not refused and not any(map(str.isspace, name))


def _groups(found: Mapping[str, Any], claim: str) -> frozenset[str]:
    """The groups of a claim, which may stand in another one: a list of texts, or words of one."""
    value: Any = found.get(claim)
    if value is None and "." in claim:
        value = found
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(one for one in value if isinstance(one, str))
    return frozenset()
