"""Plausible bugs of users, quotas and log-ins: a test with real nodes must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fifo.machine.verbs import users
from node.broker import quotas
from node.broker.broker import Broker
from node.broker.connections.admission import Admission
from node.broker.connections.authentication import Authentication
from node.broker.connections.password_queue import PasswordQueue
from node.broker.quotas import Quotas
from node.broker.requests.proposer import Proposer
from tests.machine import test_users as of_machine
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_authentication as logins
from tests.node.broker import test_log_users as in_log
from tests.node.broker import test_quotas as shares
from tests.node.broker import test_users as users_of_file
from tests.support.skipping import SkippingLoop


def _test(work: Callable[[Path], Coroutine[Any, Any, None]]) -> Hunt:
    """A test of the broker, without waiting."""
    return in_process(work, loop=SkippingLoop)


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a reload refuses who is logging in": (
        edited(Broker, "users_replaced", "connection.without_user", "connection.said_hello"),
        _test(users_of_file.test_a_reload_between_challenge_and_answer_refuses_no_client),
    ),
    "a user without a permission opens sessions": (
        edited(Admission, "_may_open", "not rights.user.may_anything", "False"),
        _test(shares.test_a_user_without_a_permission_opens_nothing),
    ),
    "one user takes a whole pool": (
        edited(quotas, "refusal", "rights is not None and own + adds > share", "False"),
        _test(shares.test_one_user_takes_half_of_the_sessions_and_no_more),
    ),
    "no place is left to operators": (
        edited(quotas, "open_to", "pool - reserve_of(quota, pool)", "pool"),
        _test(shares.test_an_operator_gets_in_where_all_sessions_are_taken),
    ),
    "an operator is held to what all others may take": (
        edited(quotas, "open_to", "rights is None or rights.user.operate", "rights is None"),
        _test(shares.test_an_operator_gets_in_where_all_sessions_are_taken),
    ),
    "what is proposed does not count": (
        edited(Proposer, "ask_for", "quotas.proposed(connection.rights, quota, adds)", "int"),
        _test(shares.test_requests_in_flight_count_before_they_are_applied),
    ),
    "what exists counts as new": (
        edited(Proposer, "ask_for", "if not adds:", "adds = max(adds, 1)\n    if False:"),
        _test(shares.test_consumers_of_every_kind_share_one_quota),
    ),
    "a rate refuses settlements": (
        edited(Quotas, "takes", "type(message) in FREE or", ""),
        _test(shares.test_a_rate_refuses_what_is_new_and_no_settlement),
    ),
    "room that settlements made is never seen": (
        edited(
            Quotas, "_look_at_stored", "if now - self._stored_at", "if not self._stored and now"
        ),
        _test(shares.test_bytes_stored_are_bounded_and_settlements_make_room),
    ),
}

LOGIN_BUGS: dict[str, tuple[Switch, Hunt]] = {
    "who guesses is served like all others": (
        edited(PasswordQueue, "_standing", "round(failed), unknown", "0, unknown"),
        in_process(
            logins.test_a_right_password_waits_for_one_hash_of_those_that_guess_at_fifty_addresses
        ),
    ),
    "one address is served until it has nothing left": (
        edited(PasswordQueue, "_rank", "job.place", "0"),
        in_process(logins.test_addresses_that_have_failed_alike_are_served_in_turn),
    ),
    "an address where a secret was right waits for first guesses": (
        edited(PasswordQueue, "_standing", "round(failed), unknown", "round(failed), False"),
        in_process(
            logins.test_an_address_where_a_secret_was_right_waits_for_no_first_guess,
            "all names",
            "token",
        ),
    ),
    "a known address waits for the guess that is under way": (
        edited(PasswordQueue, "_next", "len(under_way) > 1", "under_way"),
        in_process(
            logins.test_an_address_where_a_secret_was_right_overtakes_the_guess_under_way,
        ),
    ),
    "passwords that are equal wait in the order in which they came": (
        edited(PasswordQueue, "_next", "-1 if", "1 if"),
        in_process(
            logins.test_a_new_address_waits_for_two_of_fifty_first_guesses_before_it, "all names", 0
        ),
    ),
    "of passwords that are equal the newest is always next": (
        edited(PasswordQueue, "_next", "else 1", "else -1"),
        in_process(
            logins.test_a_new_address_waits_for_two_of_fifty_first_guesses_after_it, "all names"
        ),
    ),
    "a full queue drops who came last": (
        edited(PasswordQueue, "_drop_last", "self._rank(self._jobs[key]), ", ""),
        in_process(logins.test_a_full_queue_of_passwords_drops_who_has_failed_most),
    ),
    "wrong tokens are held against the passwords of their address": (
        edited(Authentication, "_wrong_token", "note_token(host)", "note(host, name) or 0.25"),
        in_process(logins.test_the_refusal_of_a_wrong_token_waits_longer_each_time),
    ),
    "a right token waits like a password": (
        edited(Authentication, "check", "if mechanism in (TOKEN, JWT):", "if False:"),
        in_process(logins.test_wrong_tokens_cost_their_neighbours_nothing),
    ),
}

LOG_BUGS: dict[str, tuple[Switch, Hunt]] = {
    "the connections of a revoked token stay": (
        edited(Authentication, "renewed", "if rights.token is None:", "if True:"),
        _test(in_log.test_a_token_is_revoked_alone_and_its_connections_end),
    ),
    "the connections of a token that has ended stay": (
        edited(Broker, "sweep", "self._authentication.tokens_ended()", "False"),
        _test(in_log.test_a_token_that_ends_ends_its_connections_at_that_time),
    ),
    "who connected before there were users may still do everything": (
        edited(Broker, "users_replaced", "self._authentication.required", "False"),
        _test(in_log.test_the_first_user_of_a_cluster_without_users_may_operate),
    ),
    "the last operator is removed": (
        edited(
            users,
            "_impossible",
            "if not any(user.operate and user.can_connect for",
            "if False and any(user.operate for",
        ),
        in_process(of_machine.test_there_is_always_a_user_who_may_operate),
    ),
    "of two changes of a user at once one is lost": (
        edited(users, "_stale", "if now == revision:", "if True:"),
        in_process(of_machine.test_a_user_is_created_changed_and_removed_by_its_revision),
    ),
    "a file is imported over the users of the log": (
        edited(users, "take_over", "if state.users_revision:", "if False:"),
        in_process(of_machine.test_users_of_a_file_are_taken_over_once_and_all_at_once),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("users", breaks, breaks, switch, (hunt,))
    for breaks, (switch, hunt) in (BUGS | LOGIN_BUGS | LOG_BUGS).items()
)
