"""Tokens of an identity provider: which are believed, where their keys come from, and for how long.

What a program and a caller over HTTP see stands in `tests/client/test_tokens.py`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import jwt
import pytest

from fifo.wire import Code
from node.broker import limits
from node.broker.connections.authentication import Authentication, Denied, Verdict
from node.broker.connections.jwt_keys import KeyRing, Keys, KeysUnusable, fetch, read_keys
from node.broker.connections.jwt_tokens import Tokens
from node.broker.permissions import Rights
from node.identity import JwtSettings
from node.users import Permission, Quota, User
from tests.support.identity import (
    BILLING,
    ISSUER,
    OPERATORS,
    SigningKey,
    address,
    jwks,
    page,
    settings,
)
from tests.support.users import user

NONE = Path("/nowhere")


async def turns_until(look: Callable[[], bool]) -> None:
    """Turn the loop until something is true, or fail after more turns than a fetch takes."""
    for _ in range(100):
        if look():
            return
        await asyncio.sleep(0)
    pytest.fail("not true after a hundred turns")


class Bench:
    """A door with a provider whose keys, and the clock, the test has in its hands."""

    def __init__(
        self, *keys: SigningKey, section: JwtSettings | None = None, **changes: Any
    ) -> None:
        self.now = 1_000.0
        self.wall_s = time.time()
        self.reads = 0
        self.document: bytes | None = jwks(*keys)
        self.verdicts: list[Verdict] = []
        self.settings = section or settings(NONE, **changes)
        self.ring = KeyRing(self.settings, now=lambda: self.now, read=self._read)
        self.tokens = Tokens(self.settings, self.ring, self.wall_ms)
        self.door = Authentication(
            (user("root"),),
            now=lambda: self.now,
            wall_ms=self.wall_ms,
            call_later=lambda _, call: call(),
            thread=lambda: pytest.fail("no password is hashed"),
            signed=self.tokens,
        )

    def wall_ms(self) -> int:
        return int(self.wall_s * 1000)

    async def _read(self, _: JwtSettings) -> Keys:
        self.reads += 1
        if self.document is None:
            raise KeysUnusable("does not answer")
        return read_keys(self.document)

    async def verdict(self, token: str | bytes, name: str = "") -> Verdict:
        """The verdict about a token, after a fetch of keys where that is needed."""
        self.verdicts.clear()
        secret = token.encode() if isinstance(token, str) else token
        self.door.check("10.0.0.1", "jwt", name, secret, self.verdicts.append)
        await turns_until(lambda: bool(self.verdicts))
        return self.verdicts[0]

    async def user(self, token: str) -> User:
        """The user of a token that has to be believed."""
        verdict = await self.verdict(token)
        assert isinstance(verdict, Rights), verdict
        return verdict.user

    async def refusal(self, token: str | bytes, code: Code = Code.AUTHENTICATION_FAILED) -> str:
        """Why a token is refused."""
        verdict = await self.verdict(token)
        assert isinstance(verdict, Denied), verdict.user
        assert verdict.code is code
        return verdict.text


# --- which tokens ---------------------------------------------------------------------------------


@pytest.mark.slow  # an RSA key is made
@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_that_the_provider_signed_is_its_user_in_its_groups(algorithm: str) -> None:
    key = SigningKey("k", algorithm)
    bench = Bench(key)
    found = await bench.user(key.token())
    assert (found.name, found.publish, found.operate) == ("ann", ("billing.*",), False)
    assert bench.reads == 1


async def test_a_user_may_what_any_of_its_groups_may_and_has_the_larger_share() -> None:
    key = SigningKey("k")
    small = User("small", publish=("a",), shares=((Quota.SESSIONS, 3), (Quota.QUEUES, 9)))
    large = User("large", publish=("b", "a"), shares=((Quota.SESSIONS, 5),), monitor=True)
    bench = Bench(key, groups=(small, large, OPERATORS))
    found = await bench.user(key.token(groups=["large", "small", "of others", 7]))
    assert (found.publish, found.monitor, found.operate) == (("a", "b"), True, False)
    assert dict(found.shares) == {Quota.SESSIONS: 5, Quota.QUEUES: 9}


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("groups", {"groups": "other billing"}),
        ("realm_access.roles", {"groups": None, "realm_access": {"roles": ["billing"]}}),
        ("https://x/groups", {"groups": None, "https://x/groups": ["billing"]}),
    ],
)
async def test_groups_are_a_list_or_words_of_a_claim_perhaps_within_another(
    claim: str, claims: dict[str, Any]
) -> None:
    key = SigningKey("k")
    assert (await Bench(key, claim=claim).user(key.token(**claims))).publish == BILLING.publish


async def test_a_claim_of_the_configuration_names_the_user() -> None:
    key = SigningKey("k")
    bench = Bench(key, user="email")
    assert (await bench.user(key.token(email="ann@example.com"))).name == "ann@example.com"
    assert "claim 'email' is no name" in await bench.refusal(key.token())


KEY = SigningKey("k")


def forged(header: dict[str, Any], **claims: Any) -> bytes:
    """A token without a signature of anyone's."""
    said = {"iss": ISSUER, "aud": "fifo", "sub": "ann", "groups": ["operators"], "exp": 1 << 33}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
             for part in (header, said | claims)]  # fmt: skip
    return b".".join([*parts, b""])


def by_hmac() -> bytes:
    """Signed with the public key, as if that were a secret that both sides share."""
    signed = forged({"alg": "HS256", "typ": "JWT", "kid": "k"}).rstrip(b".")
    mac = hmac.digest(KEY.pem, signed, hashlib.sha256)
    return signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")


def altered() -> str:
    """The signature of another token."""
    head, _, signature = KEY.token().split(".")
    return f"{head}.{KEY.token(groups=['operators']).split('.')[1]}.{signature}"


NESTED = base64.urlsafe_b64encode(b'{"a":' + b"[" * 2_900).rstrip(b"=")


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (lambda: forged({"alg": "none", "kid": "k"}), "signed by 'none': use RS256, ES256, EdDSA"),
        (lambda: forged({"alg": "None"}), "signed by 'None'"),
        (lambda: forged({"alg": ["ES256"]}), "signed by"),
        (lambda: forged({"kid": "k"}), "signed by None"),
        (by_hmac, "signed by 'HS256'"),
        (lambda: forged({"alg": "ES256", "kid": "k"}), "the token's signature is wrong"),
        (lambda: forged({"alg": "EdDSA", "kid": "k"}), "no EdDSA key of the identity provider"),
        (altered, "the token's signature is wrong"),
        (lambda: SigningKey("k").token(), "the token's signature is wrong"),
        (lambda: SigningKey("other").token(), "names the key 'other', which is no ES256 key"),
        (lambda: forged({"alg": "ES256", "kid": 7}), "its header cannot be read"),
        (lambda: KEY.token(headers={"crit": ["exp"]}), "header"),
        (lambda: KEY.token(aud="shop"), r"not for 'fifo' \(aud\)"),
        (lambda: KEY.token(aud=["shop", "other"]), r"not for 'fifo' \(aud\)"),
        (lambda: KEY.token(aud=None), "no claim 'aud'"),
        (lambda: KEY.token(iss="https://evil.example.com"), r"not of 'https://login.example.com'"),
        (lambda: KEY.token(iss=None), "no claim 'iss'"),
        (lambda: KEY.token(exp=None), "no claim 'exp'"),
        (lambda: KEY.token(exp=int(time.time()) - 61), "has ended"),
        (lambda: KEY.token(exp=True), "exp is no time"),
        (lambda: KEY.token(exp="tomorrow"), "exp"),
        (lambda: KEY.token(exp=float("inf")), "exp is no time"),
        (lambda: KEY.token(exp=1 << 70), "exp is no time"),
        (lambda: KEY.token(nbf=int(time.time()) + 90), "not valid yet"),
        (lambda: KEY.token(sub=None), "claim 'sub' is no name of a user"),
        (lambda: KEY.token(sub=""), "no name of a user"),
        (lambda: KEY.token(sub="ann smith"), "no name of a user"),
        (lambda: KEY.token(sub="ann\x1b[2J"), "no name of a user"),
        (lambda: KEY.token(sub="a" * 256), "no name of a user"),
        (lambda: KEY.token(sub="root"), "root is one of this cluster's own users"),
        (lambda: KEY.token(groups=["unknown"]), "ann is in no group"),
        (lambda: KEY.token(groups=None), "ann is in no group"),
        (lambda: KEY.token(groups={"billing": True}), "ann is in no group"),
        (lambda: KEY.token(more="x" * 5_000), "a token has at most 4096 bytes"),
        (lambda: b"eyJ.." + b"\xff" * 10, "cannot be read"),
        (lambda: NESTED + b".e30.", "cannot be read"),
        (lambda: b"eyJ.e30.e30", "cannot be read"),
    ],
)  # fmt: skip
async def test_any_other_token_is_refused_in_words(token: Callable[[], Any], words: str) -> None:
    assert re.search(words, await Bench(KEY).refusal(token()))


async def test_clocks_may_be_a_minute_apart() -> None:
    now_s = int(time.time())
    assert (await Bench(KEY).user(KEY.token(exp=now_s - 50, nbf=now_s + 50))).name == "ann"


async def test_a_name_beside_the_token_has_to_be_its_own() -> None:
    bench = Bench(KEY)
    assert isinstance(await bench.verdict(KEY.token(), "ann"), Rights)
    assert isinstance(await bench.verdict(KEY.token(), "bob"), Denied)


async def test_a_cluster_without_a_provider_says_so() -> None:
    bench = Bench(KEY)
    bench.door.replace_signed(None)
    assert "configure [jwt]" in await bench.refusal(KEY.token())


async def test_a_token_of_fifo_may_come_by_either_name() -> None:
    bench = Bench(KEY)
    assert isinstance(await bench.verdict("root-token"), Rights)
    assert "wrong user or secret" in await bench.refusal("another-token")


# --- for how long ---------------------------------------------------------------------------------


async def test_the_signature_of_a_token_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(KEY)
    token = KEY.token()
    rights = await bench.verdict(token)
    assert isinstance(rights, Rights)
    monkeypatch.setattr(jwt, "decode", lambda *_, **__: pytest.fail("it was checked before"))
    assert await bench.verdict(token) is rights


async def test_a_token_is_believed_until_its_end_and_so_are_its_connections() -> None:
    bench = Bench(KEY)
    token = KEY.token(exp=int(bench.wall_s) + 10)
    rights = await bench.verdict(token)
    assert isinstance(rights, Rights)
    bench.door.tokens_ended()  # the keys have come since it was asked before
    assert not bench.door.tokens_ended()
    bench.wall_s += 69
    assert not bench.door.tokens_ended()
    bench.wall_s += 2
    assert bench.door.tokens_ended()
    assert "has ended" in await bench.refusal(token)
    renewed = bench.door.renewed(rights)
    assert isinstance(renewed, Denied)
    assert "has ended" in renewed.text


async def test_the_end_of_the_next_token_is_known_after_the_first_has_ended() -> None:
    bench = Bench(KEY)
    first = await bench.verdict(KEY.token(exp=int(bench.wall_s) + 10))
    second = await bench.verdict(KEY.token(sub="bob", exp=int(bench.wall_s) + 20))
    bench.door.tokens_ended()
    bench.wall_s += 71
    assert bench.door.tokens_ended()
    for rights in (first, second):  # as a broker does for each connection
        assert isinstance(rights, Rights)
        bench.door.renewed(rights)
    assert isinstance(second, Rights)
    assert bench.door.renewed(second) is second
    assert not bench.door.tokens_ended()
    bench.wall_s += 10
    assert bench.door.tokens_ended()


async def test_other_groups_of_the_configuration_hold_for_open_connections() -> None:
    bench = Bench(KEY)
    rights = await bench.verdict(KEY.token())
    assert isinstance(rights, Rights)
    more = settings(NONE, groups=(User("billing", consume=("*",)),))
    bench.door.replace_signed(Tokens(more, bench.ring, bench.wall_ms))
    changed = bench.door.renewed(rights)
    assert isinstance(changed, Rights)
    assert changed.may(Permission.CONSUME, "any")
    assert not changed.may(Permission.PUBLISH, "billing.a")
    none = settings(NONE, groups=(OPERATORS,))
    bench.door.replace_signed(Tokens(none, bench.ring, bench.wall_ms))
    assert isinstance(bench.door.renewed(rights), Denied)


async def test_a_user_of_a_token_is_among_the_people_with_its_shares() -> None:
    bench = Bench(KEY)
    await bench.user(KEY.token())
    assert [one.user.name for one in bench.door.people()] == ["root", "ann"]
    assert [one.user.name for one in bench.door.users()] == ["root"]
    found = bench.door.rights_of("ann")
    assert found is not None
    assert found.user.publish == BILLING.publish


# --- keys -----------------------------------------------------------------------------------------


async def test_a_new_key_is_fetched_when_a_token_names_it_once_a_minute_at_most() -> None:
    old, new = SigningKey("old"), SigningKey("new")
    bench = Bench(old)
    await bench.user(old.token())
    bench.now += 61
    bench.document = jwks(old, new)
    assert (await bench.user(new.token())).name == "ann"
    assert bench.reads == 2
    for kid in range(5):
        assert "is no ES256 key" in await bench.refusal(SigningKey(f"unknown-{kid}").token())
    assert bench.reads == 2
    bench.now += 61
    await bench.refusal(SigningKey("unknown").token())
    assert bench.reads == 3


async def test_a_key_that_is_withdrawn_ends_what_its_tokens_have_opened() -> None:
    stolen, new = SigningKey("stolen"), SigningKey("new")
    bench, token = Bench(stolen), stolen.token()
    rights = await bench.verdict(token)
    assert isinstance(rights, Rights)
    assert bench.door.tokens_ended()
    assert not bench.door.tokens_ended()
    bench.document = jwks(new)
    bench.now += limits.JWT_KEYS_SECONDS + 1
    assert not bench.door.tokens_ended()  # it begins to fetch
    await turns_until(bench.door.tokens_ended)
    withdrawn = bench.door.renewed(rights)
    assert isinstance(withdrawn, Denied)
    assert "was withdrawn" in withdrawn.text
    assert "is no ES256 key" in await bench.refusal(token)


async def test_keys_stay_while_their_address_is_down_and_a_new_one_is_asked_for_again() -> None:
    old, new = SigningKey("old"), SigningKey("new")
    bench = Bench(old)
    await bench.user(old.token())
    bench.document = None
    bench.now += 61
    said = await bench.refusal(new.token(), Code.OVERLOADED)
    assert "could not read: retry shortly" in said
    assert bench.door.keys_problem() == "does not answer"
    assert (await bench.user(old.token(sub="bob"))).name == "bob"
    bench.document = jwks(old, new)
    bench.now += 61
    assert (await bench.user(new.token())).name == "ann"
    assert bench.door.keys_problem() is None


async def test_before_the_first_keys_a_client_is_to_try_again() -> None:
    bench = Bench(KEY)
    document, bench.document = bench.document, None
    await bench.refusal(KEY.token(), Code.OVERLOADED)
    await bench.refusal(KEY.token(), Code.OVERLOADED)
    assert bench.reads == 1
    bench.document = document
    bench.now += 61
    bench.door.tokens_ended()
    assert (await bench.user(KEY.token())).name == "ann"


async def test_a_token_that_names_no_key_is_of_the_only_one() -> None:
    alone, other = SigningKey(None), SigningKey(None)
    assert (await Bench(alone).user(alone.token())).name == "ann"
    assert "names no key (kid)" in await Bench(alone, other).refusal(alone.token())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"<html>", "is no JWKS"),
        (b"[" * 100_000, "is no JWKS"),
        (b'{"keys": {}}', "is no JWKS"),
        (b'{"keys": []}', "has no usable key among 0"),
        (jwks({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}), "no usable key among 1"),
        (jwks({"kty": "RSA", "n": "AQAB", "e": "AQAB"}), "no usable key"),
        (jwks({"kty": "EC", "crv": "P-256", "x": "AA", "y": 7}), "no usable key"),
        (jwks({"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"}), "no usable key"),
        (jwks(KEY.jwk(use="enc")), "no usable key"),
        (jwks(KEY.jwk(alg="ES512")), "no usable key"),
        (jwks(*[KEY.jwk()] * 101), "has 101 keys, at most 100"),
    ],
    ids=count(),  # A key is a new one in each process.
)
def test_a_document_without_a_usable_key_is_refused(document: bytes, words: str) -> None:
    with pytest.raises(KeysUnusable, match=words):
        read_keys(document)


def test_keys_beside_those_that_are_usable_are_left_out() -> None:
    strange = {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "k"}
    (only,) = read_keys(jwks(strange, {"kty": 7}, KEY))
    assert (only.kid, only.algorithm) == ("k", "ES256")
    assert not hasattr(only.public, "private_numbers")


async def test_keys_are_read_from_a_file_and_fetched_from_an_address(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(jwks(KEY))
    assert len(await fetch(settings(tmp_path))) == 1
    async with address(page(jwks(KEY))) as found:
        assert len(await fetch(settings(tmp_path, found.url))) == 1


async def _drips(writer: asyncio.StreamWriter) -> None:
    """A byte now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(1)


async def _is_silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _never_ends(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(100):
        writer.write(b" " * 64 * 1024)
        await writer.drain()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (page(b"no", "503 Service Unavailable"), "answers 503, not the keys"),
        (page(b"", "302 Found", "Location: http://127.0.0.1:1/"), "answers 302, not the keys"),
        (page(b"<html>"), "is no JWKS"),
        (page(b" " * 300_000), "is longer than 262144 bytes"),
        (_never_ends, "is longer than 262144 bytes"),
        (_drips, "is not read within 5 s"),
        (_is_silent, "is not read within 5 s"),
        (page(b"\r\n", "200 OK", "Content-Encoding: gzip"), "is no JWKS"),
    ],
)
async def test_an_address_that_gives_no_keys_costs_little_and_is_named(
    answer: Any, words: str, tmp_path: Path
) -> None:
    async with address(answer) as found:
        with pytest.raises(KeysUnusable, match=words) as caught:
            await fetch(settings(tmp_path, found.url))
        assert str(caught.value).startswith(found.url)


async def test_an_address_that_is_down_and_a_file_that_is_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(KeysUnusable, match=r"127.0.0.1:1/: does not answer"):
        await fetch(settings(tmp_path, "http://127.0.0.1:1/"))
    with pytest.raises(KeysUnusable, match=r"keys.json: cannot be read: No such file"):
        await fetch(settings(tmp_path))
