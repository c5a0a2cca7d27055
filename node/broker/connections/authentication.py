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
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from fifo.wire import Code
from node.broker import limits
from node.broker.permissions import Rights
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
from node.users import User

logger = logging.getLogger(__name__)

PASSWORD: Final = "password"
TOKEN: Final = "token"
MECHANISMS: Final = (PASSWORD, TOKEN)


@dataclass(frozen=True, slots=True)
class Denied:
    """The reason of a refusal. Its text says nothing that helps to guess."""

    code: Code
    text: str


Verdict: TypeAlias = Rights | Denied
Decide: TypeAlias = Callable[[Verdict], None]

_WRONG: Final = Denied(Code.AUTHENTICATION_FAILED, "wrong user or secret")
_BUSY: Final = Denied(Code.OVERLOADED, "too many log-ins at once: retry shortly")


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
            count = self._count(key) + 1
            self._counts.pop(key, None)
            self._counts[key] = count, self._now()
            while len(self._counts) > limits.LOGIN_ADDRESSES_MAX:
                del self._counts[next(iter(self._counts))]

    def forgive(self, host: str, name: str) -> None:
        """Forget failures at this address under this name, after a success."""
        self._counts.pop((host, name), None)

    def delay_seconds(self, host: str, name: str) -> float:
        """Seconds that the next attempt has to wait: more for this name, and for an address that
        tries many names."""
        over = max(
            self._count((host, name)) - limits.LOGIN_FAILURES_FREE,
            self._count((host, None)) - limits.LOGIN_FAILURES_FREE_PER_ADDRESS,
        )
        if over < 0:
            return 0.0
        return min(limits.LOGIN_DELAY_SECONDS_MIN * 2**over, limits.LOGIN_DELAY_SECONDS_MAX)

    def _count(self, key: tuple[str, str | None]) -> float:
        count, at = self._counts.get(key, (0.0, 0.0))
        return float(count * 0.5 ** ((self._now() - at) / limits.LOGIN_FORGET_SECONDS))

    def __len__(self) -> int:
        return len(self._counts)


class Authentication:
    """Verifies the credentials of clients. One per node."""

    def __init__(
        self,
        users: Iterable[User],
        *,
        now: Callable[[], float],
        call_later: CallLater,
        thread: Callable[[], Worker],
    ) -> None:
        """`now` in seconds; `thread` is asked once, when the first password has to be hashed."""
        self._rights: dict[str, Rights] = {}
        self._tokens: dict[bytes, Rights] = {}
        self._verified: dict[str, bytes] = {}
        self.replace(users)
        self._call_later = call_later
        self._make_thread = thread
        self._thread: Worker | None = None
        self._key = os.urandom(32)
        self._checking: dict[tuple[str, bytes], list[tuple[str, Decide]]] = {}
        self._delayed: dict[str, int] = {}
        # A user that does not exist costs as much time as one that does.
        self._decoy = PasswordHash(
            SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, os.urandom(SALT_BYTES), os.urandom(KEY_BYTES)
        )
        self.failures = Failures(now)
        self.failed_total = 0
        """Wrong names, passwords and tokens since the node began."""

    def replace(self, users: Iterable[User]) -> None:
        """Replace all users; what was remembered of their secrets is forgotten."""
        self._rights = {user.name: Rights(user) for user in users}
        self._tokens = {
            rights.user.token.digest: rights
            for rights in self._rights.values()
            if rights.user.token is not None
        }
        self._verified.clear()

    def rights_of(self, name: str) -> Rights | None:
        """The rights of the user with this name; None without such a user."""
        return self._rights.get(name)

    @property
    def required(self) -> bool:
        """Whether there are users: then every client has to be one of them."""
        return bool(self._rights)

    def without_credentials(self, host: str) -> Verdict:
        """The user of a client without credentials: from this machine, if so configured."""
        for rights in self._rights.values():
            if rights.user.loopback and is_loopback(host):
                return rights
        return Denied(
            Code.AUTHENTICATION_FAILED,
            "this cluster needs a user: connect as fifo://user:password@host:port or with ?token=",
        )

    def check(self, host: str, mechanism: str, name: str, secret: bytes, decide: Decide) -> None:
        """Call `decide` with the verdict, now or later. `name` may be empty with a token."""
        delay_seconds = self.failures.delay_seconds(host, name)
        if not delay_seconds:
            self._check(host, mechanism, name, secret, decide)
            return
        waiting = self._delayed.get(host, 0)
        if waiting >= limits.LOGINS_DELAYED_PER_ADDRESS_MAX:
            decide(_BUSY)
            return
        self._delayed[host] = waiting + 1

        def go_on() -> None:
            self._delayed[host] -= 1
            if not self._delayed[host]:
                del self._delayed[host]
            self._check(host, mechanism, name, secret, decide)

        self._call_later(delay_seconds, go_on)

    def close(self) -> None:
        """Stop the worker: attempts that are being checked get no answer any more."""
        if self._thread is not None:
            self._thread.close()

    def _check(self, host: str, mechanism: str, name: str, secret: bytes, decide: Decide) -> None:
        if mechanism not in MECHANISMS or len(secret) > SECRET_BYTES_MAX:
            self._wrong(host, name, decide)
        elif mechanism == TOKEN:
            rights = self._tokens.get(hashlib.sha256(secret).digest())
            if rights is None or name not in ("", rights.user.name):
                self._wrong(host, name, decide)
            else:
                self._right(host, rights, decide)
        else:
            digest = hmac.digest(self._key, secret, "sha256")
            if hmac.compare_digest(self._verified.get(name, b""), digest):
                self._right(host, self._rights[name], decide)
            else:
                self._hash(host, name, secret, digest, decide)

    def _hash(self, host: str, name: str, secret: bytes, digest: bytes, decide: Decide) -> None:
        """Compare with the slow hash, off the event loop; equal attempts meanwhile share it."""
        key = name, digest
        if key in self._checking:
            self._checking[key].append((host, decide))
            return
        if len(self._checking) >= limits.LOGINS_CHECKED_MAX:
            decide(_BUSY)
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
            rights = self._rights.get(name)
            right = stored is not None and found == [True]
            if right:
                self._verified[name] = digest
            for one_host, one_decide in waiting:
                if right and rights is not None:
                    self._right(one_host, rights, one_decide)
                else:
                    self._wrong(one_host, name, one_decide)

        if self._thread is None:
            self._thread = self._make_thread()
        self._thread.run(work, done)

    def _password_of(self, name: str) -> PasswordHash | None:
        rights = self._rights.get(name)
        return None if rights is None else rights.user.password

    def _right(self, host: str, rights: Rights, decide: Decide) -> None:
        self.failures.forgive(host, rights.user.name)
        decide(rights)

    def _wrong(self, host: str, name: str, decide: Decide) -> None:
        self.failures.note(host, name)
        self.failed_total += 1
        # A name that is not a user's may be a password in the wrong place: it is not written down.
        shown = name if name in self._rights else "-"
        logger.warning("event=login_failed user=%s address=%s", shown, host)
        decide(_WRONG)


def is_loopback(host: str) -> bool:
    """Whether a peer's numeric address is this machine itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
