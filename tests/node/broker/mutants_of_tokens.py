"""Plausible bugs of tokens of an identity provider, and of tickets.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them. None
of them where the extra `jwt` is not installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from node.broker.connections.authentication import Authentication
from node.broker.connections.tickets import Tickets
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.http import test_callers as callers


def _of_tokens() -> dict[str, tuple[Switch, Hunt]]:
    from node.broker.connections import jwt_keys
    from node.broker.connections.jwt_keys import KeyRing
    from node.broker.connections.jwt_tokens import Tokens
    from tests.node.broker import test_jwt as tokens
    from tests.support.identity import jwks

    refused = tokens.test_any_other_token_is_refused_in_words

    def is_refused(token: Callable[[], Any], words: str) -> Hunt:
        return in_process(refused, token, words)

    now_s = time.time
    key = tokens.KEY
    return {
        "a token may choose the algorithm of its signature": (
            edited(jwt_keys.KeyRing, "find", "if key.algorithm == algorithm", "if True"),
            is_refused(
                lambda: tokens.forged({"alg": "EdDSA", "kid": "k"}), "no EdDSA key of the identity"
            ),
        ),
        "a token of no signature is looked at": (
            edited(Tokens, "_key", "if algorithm not in ALGORITHMS:", "if False:"),
            is_refused(lambda: tokens.forged({"alg": "none", "kid": "k"}), "signed by 'none'"),
        ),
        "a token of another audience is believed": (
            edited(Tokens, "_claims", "audience=self._settings.audience", 'audience=["shop"]'),
            is_refused(lambda: key.token(aud="shop"), "not for 'fifo'"),
        ),
        "a token of another issuer is believed": (
            edited(Tokens, "_claims", "issuer=self._settings.issuer", "issuer=None"),
            is_refused(lambda: key.token(iss="https://evil.example.com"), "not of 'https://login"),
        ),
        "a token without an end is believed": (
            edited(Tokens, "_claims", '"require": ["exp", "iss", "aud"]', '"require": []'),
            is_refused(lambda: key.token(exp=None), "no claim 'exp'"),
        ),
        "a token that has ended is believed": (
            edited(Tokens, "_read", "if ends_ms + limits.JWT_LEEWAY_MS <= now_ms:", "if False:"),
            is_refused(lambda: key.token(exp=int(now_s()) - 61), "has ended"),
        ),
        "a token is believed before its time": (
            edited(Tokens, "_read", "if begins_ms - limits.JWT_LEEWAY_MS > now_ms:", "if False:"),
            is_refused(lambda: key.token(nbf=int(now_s()) + 90), "not valid yet"),
        ),
        "a token's user may stand over a cluster's own": (
            edited(
                Authentication, "_check_signed",
                "isinstance(verdict, Rights) and verdict.user.name in self._rights", "False",
            ),
            is_refused(lambda: key.token(sub="root"), "one of this cluster's own users"),
        ),
        "a user in no group gets in": (
            edited(Tokens, "_rights", "if not groups:", "if False:"),
            is_refused(lambda: key.token(groups=["unknown"]), "in no group"),
        ),
        "the name of a token's user may hold marks of a terminal": (
            edited(Tokens, "_read", "or not _is_user(user)", ""),
            is_refused(lambda: key.token(sub="ann\x1b[2J"), "no name of a user"),
        ),
        "a token that was believed once is believed for ever": (
            edited(Tokens, "_verdict", "self._ended(known) or known", "known"),
            in_process(tokens.test_a_token_is_believed_until_its_end_and_so_are_its_connections),
        ),
        "a connection outlives its provider's token": (
            edited(Authentication, "_check_signed", "self._note_end(verdict)", "pass"),
            in_process(tokens.test_a_token_is_believed_until_its_end_and_so_are_its_connections),
        ),
        "the second of two tokens never ends": (
            edited(Authentication, "_renewed_signed", "self._note_end(verdict)", "pass"),
            in_process(tokens.test_the_end_of_the_next_token_is_known_after_the_first_has_ended),
        ),
        "a key that was withdrawn goes on opening": (
            edited(Tokens, "_forget_withdrawn", "self._verified.clear()", "pass"),
            in_process(tokens.test_a_key_that_is_withdrawn_ends_what_its_tokens_have_opened),
        ),
        "connections of a key that was withdrawn stay": (
            edited(KeyRing, "holds", "not self.revision or any(", "True or any("),
            in_process(tokens.test_a_key_that_is_withdrawn_ends_what_its_tokens_have_opened),
        ),
        "each unknown key asks the provider": (
            edited(KeyRing, "unknown", "if (self._fetching is None and recent)", "if False"),
            in_process(
                tokens.test_a_new_key_is_fetched_when_a_token_names_it_once_a_minute_at_most
            ),
        ),
        "keys that cannot be read are forgotten": (
            edited(
                KeyRing, "_run", "self.problem = str(error)",
                "self.problem = str(error); self.keys = ()",
            ),
            in_process(
                tokens.test_keys_stay_while_their_address_is_down_and_a_new_one_is_asked_for_again
            ),
        ),
        "a secret is taken for a public key": (
            edited(jwt_keys, "_usable", 'given.get("use", "sig") != "sig"', "False"),
            in_process(
                tokens.test_a_document_without_a_usable_key_is_refused,
                jwks(key.jwk(use="enc")), "no usable key",
            ),
        ),
        "other groups of the configuration wait for the next log-in": (
            edited(Tokens, "renewed", "if signed.settings is self._settings:", "if True:"),
            in_process(tokens.test_other_groups_of_the_configuration_hold_for_open_connections),
        ),
    }  # fmt: skip


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a ticket that anyone made is taken": (
        edited(Tickets, "subject_of", "not hmac.compare_digest(mac, wanted)", "False"),
        in_process(callers.test_a_ticket_is_for_its_subject_and_its_minute_and_of_nodes_that_share_a_secret),
    ),
    "a ticket never ends": (
        edited(Tickets, "subject_of", "-limits.TICKET_MS < left_ms", "True"),
        in_process(callers.test_a_ticket_is_for_its_subject_and_its_minute_and_of_nodes_that_share_a_secret),
    ),
}  # fmt: skip

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("tokens", breaks, breaks, switch, (hunt,))
    for breaks, (switch, hunt) in ({**BUGS, **_of_tokens()} if find_spec("jwt") else BUGS).items()
)
