"""Plausible bugs of the HTTP API: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.http import limits
from node.http.api import bodies, events, exchange, pins, problems, serving, sites
from node.http.api.callers import Caller, Callers
from node.http.api.events import Events
from node.http.api.places import Places
from node.http.api.provider_tokens import ProviderTokens
from node.http.api.serving import Api
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import FIXTURES, in_process
from tests.mutants.switch import Switch, edited
from tests.node.http import test_api as api
from tests.node.http import test_callers as callers
from tests.node.http import test_events as streams
from tests.node.http import test_exchange as exchanges
from tests.node.http import test_pins as pinned
from tests.node.http import test_provider_sessions as provided

_QUICK = {"EVENTS_SECONDS": 0.02, "EVENTS_CHECK_SECONDS": 0.0, "EVENTS_SILENCE_SECONDS": 0.1}


@contextmanager
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder, where events come at once."""
    for name, value in _QUICK.items():
        monkeypatch.setattr(limits, name, value)
    with FIXTURES["tmp_path"]() as folder:
        yield folder


_another_site = in_process(api.test_a_page_of_another_site_may_not_change_anything)
_form = in_process(exchanges.test_what_a_form_of_a_page_can_send_changes_nothing)
_too_much = in_process(exchanges.test_what_is_wrong_or_too_much_is_refused)
_at_once = in_process(api.test_options_that_two_change_at_once_are_changed_by_one)
_unused = in_process(exchanges.test_a_session_that_holds_locks_stays_and_an_unused_one_ends)
_wrong = in_process(api.test_what_is_wrong_is_a_problem_with_fact_value_and_fix)
_rights = in_process(
    streams.test_a_listener_sees_what_its_user_may_see_while_there_is_that_user,
    fixtures={"tmp_path": _quick},
)
_in_hand = in_process(provided.test_the_token_that_lasts_longest_and_is_believed_stays_in_hand)
_others = in_process(
    provided.test_other_groups_or_another_user_are_other_credentials_and_all_are_bounded
)

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a page of another site changes what it likes": (
        edited(sites, "check", "(origin is not None and origin != ours)", "False"),
        _another_site,
    ),
    "a browser that says that another site asks is not believed": (
        edited(sites, "check", 'site not in ("same-origin", "none")', "False"),
        _another_site,
    ),
    "a form of a page can publish": (
        edited(sites, "check", 'request.method == "POST" and kind in _FORMS', "False"),
        _form,
    ),
    "a name of another site that leads here is of one origin with a node": (
        edited(sites, "check", "not _is_ours(request.host, names)", "False"),
        _form,
    ),
    "a key that no queue remembers is taken for a promise": (
        edited(exchange, "_check_window", ".get(\"dedup_window_ms\") is None", " is None"),
        _form,
    ),
    "a lock is settled by a handle that is not its own": (
        edited(Caller, "held", "(message.handle, message.queue) != (lock.handle, lock.queue)",
               "False"),
        _too_much,
    ),
    "gets that wait take every connection": (
        edited(Places, "taken", "len(self) >= self._most or self._taken[name] >= share", "False"),
        _too_much,
    ),
    "a body that is packed is taken as it is": (
        edited(bodies, "read", "not in _IDENTITY", "in ()"),
        _too_much,
    ),
    "a session that holds locks ends as an unused one": (
        edited(Callers, "_rest", "if caller.holds:", "if False:"),
        _unused,
    ),
    "an unused session stays": (
        edited(Callers, "_rest", "self._drop(credentials, caller)", "pass"),
        _unused,
    ),
    "a lock that another node renews is forgotten here": (
        edited(Caller, "look", "message.is_lost or not await self._is_locked(message)", "True"),
        _unused,
    ),
    "If-Match is not looked at": (
        edited(Api, "_given", 'route.conditional and "If-Match" in request.headers', "False"),
        _at_once,
    ),
    "what was changed meanwhile is any conflict": (
        edited(problems, "of_error", "status = 412 if", "status = 409 if"),
        _at_once,
    ),
    "a parameter that is not known is passed over": (
        edited(serving, "gathered", "raise _unknown(name, where, params)", "continue"),
        _wrong,
    ),
    "the audit log has a balancer's address": (
        edited(Api, "_answer", "credentials._replace(remote=request.remote)", "credentials"),
        in_process(callers.test_the_audit_log_shows_the_address_behind_a_balancer),
    ),
    "a listener hears of queues that its user may not see": (
        edited(Events, "queues", "if rights is not None:", "if False:"),
        _rights,
    ),
    "a listener whose user was removed goes on listening": (
        edited(events._Stream, "check", "raise Problem(verdict.code, verdict.text)", "return"),
        _rights,
    ),
    "a pin leads to any address": (
        edited(pins, "_ref_of", "not in client.options.addresses", "in ()"),
        in_process(pinned.test_a_pin_leads_to_no_address_but_those_of_the_nodes_and_has_the_users_rights),
    ),
    "a provider's token of fewer groups rides on a stronger one": (
        edited(ProviderTokens, "note", "groups=rights.signed.groups", "groups=frozenset()"),
        _others,
    ),
    "a provider's token that is believed no longer stays in hand": (
        edited(ProviderTokens, "note", "or not self._believes(known.rights)", ""),
        _in_hand,
    ),
    "a log-in is made by a token that has ended": (
        edited(ProviderTokens, "token", "or not self._believes(known.rights)", ""),
        _in_hand,
    ),
    "tokens in hand have no bound": (
        edited(ProviderTokens, "note", "len(self._tokens) > limits.API_TOKENS_MAX", "False"),
        _others,
    ),
}  # fmt: skip

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("http", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
