"""Authentication: credentials verified, and guessing slowed down.

Owns the verification of a name and a secret, off the event loop if it is slow, and the memory of
failures, for the client port and the http port. A verified password is remembered as a keyed digest
while the process runs, so that ten thousand clients that reconnect at once cost one scrypt per user
and not one per connection. Secrets are never logged, kept or shown. Must not know connections,
frames or what users may do.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fifo.wire import Code
from node.broker import limits
from node.broker.connections.password_queue import PasswordQueue
from node.broker.connections.tickets import Tickets
from node.broker.connections.verdicts import BUSY, Decide, Denied, Verdict
from node.broker.permissions import Rights, Signed
from node.credentials import (
    KEY_BYTES,
    SALT_BYTES,
    SCRYPT_LOG_N,
    SCRYPT_P,
    SCRYPT_R,
    SECRET_BYTES_MAX,
    PasswordHash,
)
from node.journal.io.jobs import Worker
from node.raft import Seldom
from node.users import User

if TYPE_CHECKING:
    from node.broker.connections.jwt_tokens import Tokens

__all__ = ["Authentication", "Decide", "Denied", "Failures", "Verdict", "is_loopback"]

logger = logging.getLogger(__name__)

PASSWORD: Final = "password"
TOKEN: Final = "token"
JWT: Final = "jwt"
"""A token too, of an identity provider: its name lets older nodes say that they know none."""

MECHANISMS: Final = (PASSWORD, TOKEN, JWT)


_TOKENS: Final = "\0tokens"
"""In the place of a name, which has no such character: wrong tokens of an address."""

_WRONG: Final = Denied(Code.AUTHENTICATION_FAILED, "wrong user or secret")


_NO_PROVIDER: Final = Denied(
    Code.AUTHENTICATION_FAILED,
    "this cluster takes no tokens of an identity provider: configure [jwt], or use a token of"
    " `fifo user add-token`",
)


def is_jwt(secret: bytes) -> bool:
    """Whether this has the form of a token of an identity provider: three parts, of which the first
    is a JSON object in base64. None of ours has it."""
    return secret.startswith(b"eyJ") and secret.count(b".") == 2


def _taken(rights: Rights) -> Denied:
    text = (
        f"user {rights.user.name} is one of this cluster's own users: a token of the identity"
        " provider cannot prove it"
    )
    return Denied(Code.AUTHENTICATION_FAILED, text)


class CallLater(Protocol):
    """A loop's timer."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object:
        """Call back after `delay` seconds."""


class Failures:
    """Recent failures, by the address and the name that were given.

    The first few cost nothing, because people mistype; each further one doubles the wait. Half of
    them are forgotten in a minute.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counts: dict[tuple[str, str | None], tuple[float, float]] = {}

    def note(self, host: str, name: str) -> None:
        """Count a failure at this address under this name."""
        for key in ((host, name), (host, None)):
            self._set(key, self._count(key) + 1)

    def _set(self, key: tuple[str, str | None], count: float) -> None:
        self._counts.pop(key, None)
        self._counts[key] = count, self._now()
        while len(self._counts) > limits.LOGIN_ADDRESSES_MAX:
            del self._counts[next(iter(self._counts))]

    def note_token(self, host: str) -> float:
        """Count a wrong token at this address; seconds that its refusal waits. It slows down no
        password: the neighbours of a program with an old token are not guessing."""
        key = host, _TOKENS
        self._set(key, self._count(key) + 1)
        return _delay_seconds(self._count(key) - limits.LOGIN_FAILURES_FREE)

    def at(self, host: str) -> float:
        """Recent failures of passwords at this address."""
        return self._count((host, None))

    def forgive(self, host: str, name: str) -> None:
        """Forget failures at this address under this name, after a success."""
        self._counts.pop((host, name), None)

    def delay_seconds(self, host: str, name: str) -> float:
        """Seconds that the next attempt has to wait: more for this name, and for an address that
        tries many names."""
        return _delay_seconds(
            max(
                self._count((host, name)) - limits.LOGIN_FAILURES_FREE,
                self._count((host, None)) - limits.LOGIN_FAILURES_FREE_PER_ADDRESS,
            )
        )

    def _count(self, key: tuple[str, str | None]) -> float:
        count, at = self._counts.get(key, (0.0, 0.0))
        return float(count * 0.5 ** ((self._now() - at) / limits.LOGIN_FORGET_SECONDS))

    def __len__(self) -> int:
        return len(self._counts)


def _delay_seconds(over: float) -> float:
    """Seconds to wait after so many failures more than are free."""
    if over < 0:
        return 0.0
    return min(limits.LOGIN_DELAY_SECONDS_MIN * 2**over, limits.LOGIN_DELAY_SECONDS_MAX)


class Authentication:
    """Verifies the credentials of clients. One per node."""

    def __init__(
        self,
        users: Iterable[User],
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        call_later: CallLater,
        thread: Callable[[], Worker],
        always: bool = False,
        signed: Tokens | None = None,
        tickets: Tickets | None = None,
    ) -> None:
        """`now` in seconds; `thread` is asked for one, or two, when passwords have to be hashed.
        `always`: clients have to be users also while there are none. `signed`: who verifies tokens
        of an identity provider; `tickets`: who issues those of the nodes' own http ports."""
        self._always = always
        self._wall_ms = wall_ms
        self._signed = signed
        self._keys_seen = 0
        self._tickets = tickets
        self._rights: dict[str, Rights] = {}
        self._by_password: dict[str, Rights] = {}
        self._tokens: dict[bytes, Rights] = {}
        self._subjects: dict[str, Rights] = {}
        self._verified: dict[str, bytes] = {}
        self._next_end_ms: int | None = None
        self.replace(users)
        self._call_later = call_later
        self._key = os.urandom(32)
        self._checking: dict[tuple[str, bytes], list[tuple[str, Decide]]] = {}
        self._delayed: dict[tuple[str, str], int] = {}
        # A user that does not exist costs as much time as one that does.
        self._decoy = PasswordHash(
            SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, os.urandom(SALT_BYTES), os.urandom(KEY_BYTES)
        )
        self.failures = Failures(now)
        self._known: dict[str, None] = {}
        """Addresses at which a secret was right, the latest last."""
        self._passwords = PasswordQueue(self.failures.at, self._known.__contains__, thread)
        self._logged = Seldom(now)
        self.failed_total = 0
        """Wrong names, passwords and tokens since the node began."""

    def replace(self, users: Iterable[User]) -> None:
        """Replace all users; what was remembered of their secrets is forgotten."""
        self._rights = {user.name: Rights(user) for user in users}
        self._by_password = {
            name: Rights(rights.user, by_password=True) for name, rights in self._rights.items()
        }
        self._tokens = {
            token.hash.digest: Rights(rights.user, token)
            for rights in self._rights.values()
            for token in rights.user.tokens
        }
        self._subjects = {
            subject: Rights(rights.user, subject=subject)
            for rights in self._rights.values()
            for subject in rights.user.subjects
        }
        self._verified.clear()
        self._look_for_ends()

    def _look_for_ends(self) -> None:
        now_ms = self._wall_ms()
        ends = (one.token.ends_ms for one in self._tokens.values() if one.token is not None)
        self._next_end_ms = min(
            (end for end in ends if end is not None and end > now_ms), default=None
        )

    def tokens_ended(self) -> bool:
        """Whether a token has ended since this was asked before, or a provider's key was
        withdrawn."""
        if self._signed is not None:
            keys = self._signed.keys
            keys.look()
            if keys.revision != self._keys_seen:
                self._keys_seen = keys.revision
                return True
        if self._next_end_ms is None or self._next_end_ms > self._wall_ms():
            return False
        self._look_for_ends()
        return True

    def replace_signed(self, signed: Tokens | None) -> None:
        """Have others verify tokens of an identity provider: the configuration has changed."""
        if self._signed is not None:
            self._signed.keys.close()
        self._signed, self._keys_seen = signed, 0

    def keys_problem(self) -> str | None:
        """Why the keys of the identity provider were not read; None where they were."""
        return None if self._signed is None else self._signed.keys.problem

    def _note_end(self, rights: Rights) -> None:
        """Have `tokens_ended` know the end of a provider's token."""
        if rights.signed is not None:
            end_ms = rights.signed.ends_ms + limits.JWT_LEEWAY_MS
            self._next_end_ms = min(self._next_end_ms or end_ms, end_ms)

    def renewed(self, rights: Rights) -> Verdict:
        """The rights that a connection with these has from now on: of the same user, by the same
        token, unless that was revoked or has ended."""
        found = self._rights.get(rights.user.name)
        if rights.signed is not None:
            return self._renewed_signed(rights, rights.signed)
        if found is None:
            text = f"user {rights.user.name} was removed"
            return Denied(Code.AUTHENTICATION_FAILED, text)
        if rights.subject is not None:
            shown = self._subjects.get(rights.subject)
            if shown is not None and shown.user.name == rights.user.name:
                return shown
            text = f"certificate {rights.subject} is no longer user {rights.user.name}'s"
            return Denied(Code.AUTHENTICATION_FAILED, text)
        if rights.token is None:
            return self._by_password[found.user.name] if rights.by_password else found
        same = self._tokens.get(rights.token.hash.digest)
        if same is None or same.user.name != rights.user.name:
            text = f"token {rights.token.name!r} of user {rights.user.name} was revoked"
            return Denied(Code.AUTHENTICATION_FAILED, text)
        return self._ended(same) or same

    def _renewed_signed(self, rights: Rights, signed: Signed) -> Verdict:
        if self._signed is None or rights.user.name in self._rights:
            return _taken(rights)
        verdict = self._signed.renewed(rights, signed)
        if isinstance(verdict, Rights):
            self._note_end(verdict)
        return verdict

    def believes(self, rights: Rights) -> bool:
        """Whether a token of an identity provider that gave these rights is still believed. Changes
        nothing, so that any thread may ask."""
        signed = self._signed
        return (
            signed is not None
            and rights.signed is not None
            and rights.user.name not in self._rights
            and signed.believes(rights.signed)
        )

    def _ended(self, rights: Rights) -> Denied | None:
        token = rights.token
        if token is None or token.ends_ms is None or token.ends_ms > self._wall_ms():
            return None
        text = f"token {token.name!r} of user {rights.user.name} has ended: ask for another one"
        return Denied(Code.AUTHENTICATION_FAILED, text)

    def users(self) -> list[Rights]:
        """All users, in the order of the file."""
        return list(self._rights.values())

    def people(self) -> list[Rights]:
        """All users, and those that an identity provider's tokens have brought."""
        return self.users() + ([] if self._signed is None else self._signed.users())

    def rights_of(self, name: str) -> Rights | None:
        """The rights of the user with this name; None without such a user."""
        found = self._rights.get(name)
        if found is None and self._signed is not None:
            found = self._signed.user(name)
        return found

    @property
    def required(self) -> bool:
        """Whether there are users: then every client has to be one of them."""
        return self._always or bool(self._rights) or self._signed is not None

    def without_credentials(self, host: str) -> Verdict:
        """The user of a client without credentials: from this machine, if so configured."""
        for rights in self._rights.values():
            if rights.user.loopback and is_loopback(host):
                return rights
        return Denied(
            Code.AUTHENTICATION_FAILED,
            "this cluster needs a user: connect as fifo://user:password@host:port or with ?token=",
        )

    def by_certificate(self, host: str, subject: str) -> Verdict:
        """The user of a client that showed a certificate of `client_ca`, and nothing else."""
        rights = self._subjects.get(subject)
        if rights is not None:
            self._note_right(host)
            return rights
        self.failed_total += 1
        if self._logged.may(f"certificate {host}"):
            logger.warning("event=login_failed subject=%s address=%s", subject, host)
        text = f"no user has the certificate {subject}: add it by `fifo user set NAME --subject`"
        return Denied(Code.AUTHENTICATION_FAILED, text)

    def ticket(self, subject: str) -> str:
        """A token for a caller of this node's http port whose certificate has this subject."""
        return "" if self._tickets is None else self._tickets.issue(subject)

    def check(self, host: str, mechanism: str, name: str, secret: bytes, decide: Decide) -> None:
        """Call `decide` with the verdict, now or later. `name` may be empty with a token.

        A token is checked at once, for that costs nothing and none can be guessed: only the refusal
        of a wrong one waits. A password waits first, or a right guess would stand out by its time.
        """
        if mechanism in (TOKEN, JWT):
            self._check_token(host, name, secret, decide)
            return
        delay_seconds = self.failures.delay_seconds(host, name)
        later = partial(self._check, host, mechanism, name, secret, decide)
        if not self._after(delay_seconds, (host, mechanism), later):
            decide(BUSY)

    def _after(self, seconds: float, who: tuple[str, str], call: Callable[[], None]) -> bool:
        """Call after a delay, if any; False where too many calls of that address wait."""
        if not seconds:
            call()
            return True
        waiting = self._delayed.get(who, 0)
        if waiting >= limits.LOGINS_DELAYED_PER_ADDRESS_MAX:
            return False
        self._delayed[who] = waiting + 1

        def go_on() -> None:
            self._delayed[who] -= 1
            if not self._delayed[who]:
                del self._delayed[who]
            call()

        self._call_later(seconds, go_on)
        return True

    def _check_token(self, host: str, name: str, secret: bytes, decide: Decide) -> None:
        rights = None
        if len(secret) <= SECRET_BYTES_MAX:
            rights = self._tokens.get(hashlib.sha256(secret).digest())
        if rights is not None and name in ("", rights.user.name):
            self._note_right(host)
            decide(self._ended(rights) or rights)
        elif rights is None and is_jwt(secret):
            self._check_signed(host, name, secret, decide)
        elif rights is None and (found := self._by_ticket(secret)) is not None:
            decide(found)
        else:
            self._wrong_token(host, name, _WRONG, decide)

    def _by_ticket(self, secret: bytes) -> Rights | None:
        """The user whose certificate the http port of a node has seen; None for no such ticket."""
        subject = None if self._tickets is None else self._tickets.subject_of(secret)
        return None if subject is None else self._subjects.get(subject)

    def _check_signed(self, host: str, name: str, secret: bytes, decide: Decide) -> None:
        """Check a token of an identity provider."""

        def decided(verdict: Verdict) -> None:
            if isinstance(verdict, Rights) and verdict.user.name in self._rights:
                verdict = _taken(verdict)
            elif isinstance(verdict, Rights) and name not in ("", verdict.user.name):
                verdict = _WRONG
            if isinstance(verdict, Rights):
                self._note_end(verdict)
                self._note_right(host)
                decide(verdict)
            elif verdict.code is Code.OVERLOADED:
                decide(verdict)
            else:
                self._wrong_token(host, "", verdict, decide)

        if self._signed is None:
            decided(_NO_PROVIDER)
        else:
            self._signed.check(secret, decided)

    def _wrong_token(self, host: str, name: str, verdict: Denied, decide: Decide) -> None:
        """Refuse a token, a little later where there were many of that address."""
        self._note_wrong(host, name)
        seconds = self.failures.note_token(host)
        if not self._after(seconds, (host, TOKEN), partial(decide, verdict)):
            decide(verdict)

    def close(self) -> None:
        """Stop the worker: attempts that are being checked get no answer any more."""
        self._passwords.close()
        self.replace_signed(None)

    def _check(self, host: str, mechanism: str, name: str, secret: bytes, decide: Decide) -> None:
        if mechanism not in MECHANISMS or len(secret) > SECRET_BYTES_MAX:
            self._wrong(host, name, decide)
        else:
            digest = hmac.digest(self._key, secret, "sha256")
            if hmac.compare_digest(self._verified.get(name, b""), digest):
                self._right(host, self._by_password[name], decide)
            else:
                self._hash(host, name, secret, digest, decide)

    def _hash(self, host: str, name: str, secret: bytes, digest: bytes, decide: Decide) -> None:
        """Compare with the slow hash, off the event loop; equal attempts meanwhile share it."""
        key = name, digest
        if self._passwords.join(key, host):
            self._checking[key].append((host, decide))
            return
        self._checking[key] = [(host, decide)]
        stored = self._password_of(name)
        found: list[bool] = []

        def work() -> None:
            found.append((stored or self._decoy).matches(secret))

        def done(error: BaseException | None) -> None:
            if error is not None:
                logger.error("event=login_check_failed error=%s", type(error).__name__)
            waiting = self._checking.pop(key)
            if self._password_of(name) != stored:
                # Replaced meanwhile: the verdict would be about a password that is none any more.
                for one_host, one_decide in waiting:
                    self._check(one_host, PASSWORD, name, secret, one_decide)
                return
            rights = self._by_password.get(name)
            right = stored is not None and found == [True]
            if right:
                self._verified[name] = digest
            for one_host, one_decide in waiting:
                if right and rights is not None:
                    self._right(one_host, rights, one_decide)
                else:
                    self._wrong(one_host, name, one_decide)

        def dropped() -> None:
            for _, one_decide in self._checking.pop(key):
                one_decide(BUSY)

        if not self._passwords.add(key, host, work, done, dropped):
            dropped()

    def _password_of(self, name: str) -> PasswordHash | None:
        rights = self._rights.get(name)
        return None if rights is None else rights.user.password

    def _right(self, host: str, rights: Rights, decide: Decide) -> None:
        self.failures.forgive(host, rights.user.name)
        self._note_right(host)
        decide(rights)

    def _note_right(self, host: str) -> None:
        self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > limits.LOGIN_ADDRESSES_MAX:
            del self._known[next(iter(self._known))]

    def _wrong(self, host: str, name: str, decide: Decide) -> None:
        self.failures.note(host, name)
        self._note_wrong(host, name)
        decide(_WRONG)

    def _note_wrong(self, host: str, name: str) -> None:
        self.failed_total += 1
        # A name that is not a user's may be a password in the wrong place: it is not written down.
        shown = name if name in self._rights else "-"
        if self._logged.may(f"{shown} {host}"):
            logger.warning("event=login_failed user=%s address=%s", shown, host)


def is_loopback(host: str) -> bool:
    """Whether a peer's numeric address is this machine itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
