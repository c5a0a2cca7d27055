"""Plausible bugs of the broker: a test of its parts must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from node.broker import views
from node.broker.batcher import Batcher
from node.broker.bodiless import Bodiless
from node.broker.connections.admission import Admission
from node.broker.connections.connection import Connection
from node.broker.connections.input_turns import InputTurns, Share
from node.broker.connections.output import Output
from node.broker.effects import Effects
from node.broker.proposals import Proposals
from node.broker.reads import Reads
from node.broker.requests import publishing
from node.broker.requests.publishing_across import PublishingAcross
from node.broker.requests.queries import Queries
from node.broker.requests.renewal import Renewals
from node.server import Node
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_batcher as batcher
from tests.node.broker import test_bodiless as bodiless
from tests.node.broker import test_fair_turns as turns
from tests.node.broker import test_founders as founders
from tests.node.broker import test_leader_renewals as leader_renewals
from tests.node.broker import test_listings as listings
from tests.node.broker import test_output as output
from tests.node.broker import test_proposals as proposals
from tests.node.broker import test_publish_across as across
from tests.node.broker import test_sessions as sessions
from tests.sim import test_reads as reads
from tests.support.cluster import running
from tests.support.skipping import SkippingLoop

TEST_SECONDS = 10.0
"""A bug may have a test of turns wait for ever."""


@asynccontextmanager
async def _leading() -> AsyncIterator[Node]:
    """A node that leads."""
    with tempfile.TemporaryDirectory(prefix="fifo-mutant-") as folder:
        async with running(Path(folder), count=1) as started:
            yield await started.leader()


def _test(work: Callable[[], Coroutine[Any, Any, None]]) -> Hunt:
    """A test of the parts of the broker."""
    return in_process(work, within_s=TEST_SECONDS)


def _sync(work: Callable[[], None]) -> Hunt:
    """A test without a loop."""
    return scenario(work, named(work))


def _at_node(work: Callable[..., Coroutine[Any, Any, None]]) -> Hunt:
    """A test of nodes, without waiting."""
    return in_process(work, fixtures={"node": _leading}, loop=SkippingLoop)


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "the list of the file may change while the log names no members": (
        edited(
            Node, "_check_founders", "papers.founders and named != sorted(papers.founders)", "False"
        ),
        in_process(founders.test_a_member_whose_file_has_another_list_does_not_start, ("n1", "n2")),
    ),
    "acks alone leave at once": (
        edited(Batcher, "due", "in_flight == 0 and self.may_leave(now)", "in_flight == 0"),
        _sync(batcher.test_patient_commands_alone_wait_two_milliseconds_with_nothing_on_its_way),
    ),
    "a command that is waited for waits with the acks before it": (
        edited(Batcher, "add", "elif not patient:", "elif not patient and len(batch.packed) == 1:"),
        _sync(batcher.test_a_command_that_is_waited_for_takes_the_patient_ones_along),
    ),
    "no turn comes for a command behind acks": (
        edited(Proposals, "propose", "elif waits:", "elif first:"),
        _sync(proposals.test_a_patient_command_leaves_with_the_next_that_is_waited_for),
    ),
    "a commit sends acks alone": (
        edited(Proposals, "flush", "committed and batcher.may_leave(now)", "committed"),
        _sync(proposals.test_a_commit_sends_no_patient_command_after_it),
    ),
    "no company is waited for behind an entry of messages": (
        edited(Batcher, "committed", "size_bytes > limits.COMPANY_BYTES_MIN", "False"),
        _sync(batcher.test_a_batch_waits_for_as_many_as_the_last_entry_answered_and_left_behind),
    ),
    "what has gathered behind an entry is no company": (
        edited(Batcher, "committed", "with_raw + gathered", "with_raw"),
        _sync(batcher.test_a_batch_waits_for_as_many_as_the_last_entry_answered_and_left_behind),
    ),
    "who was answered by an entry is no company": (
        edited(Batcher, "committed", "with_raw + gathered", "gathered"),
        _sync(batcher.test_a_batch_waits_for_as_many_as_the_last_entry_answered_and_left_behind),
    ),
    "a nack waits for the company of publishes": (
        edited(Batcher, "in_company", "batch.urgent or ", ""),
        _sync(
            proposals.test_what_may_wait_for_nothing_has_a_turn_at_once_behind_an_entry_of_messages
        ),
    ),
    "company is waited for without an end": (
        edited(Batcher, "may_leave", "now >= self._company_until", "False"),
        _sync(batcher.test_company_is_waited_for_until_an_instant),
    ),
    "company is waited for behind a small entry": (
        edited(Batcher, "committed", "size_bytes > limits.COMPANY_BYTES_MIN", "True"),
        _sync(batcher.test_behind_a_small_entry_no_company_is_waited_for),
    ),
    "the company of an earlier entry is still waited for": (
        edited(Batcher, "committed", "self._company = 1", "pass"),
        _sync(batcher.test_behind_a_small_entry_no_company_is_waited_for),
    ),
    "no turn comes when the wait for company is over": (
        edited(Batcher, "wait", "else min(until, self._company_until)", "else until"),
        _sync(
            proposals.test_company_that_does_not_come_is_waited_for_two_milliseconds_from_the_last_entry
        ),
    ),
    "no turn comes when the company is there": (
        edited(Batcher, "wait", "now if self.in_company() else ", ""),
        _sync(proposals.test_behind_an_entry_of_messages_the_next_waits_for_those_that_it_answered),
    ),
    "behind a slow commit no company is waited for": (
        edited(Proposals, "_done", "now + part_s", "now"),
        in_process(
            proposals.test_where_a_commit_takes_long_company_is_waited_for_a_part_of_that,
            0.004,
            0.001,
        ),
    ),
    "a command whose company is overdue has no turn": (
        edited(Proposals, "propose", "self._turns.ask()", "pass"),
        _sync(proposals.test_a_command_whose_company_is_overdue_has_a_turn_at_once),
    ),
    "a share of a client has no end": (
        edited(Share, "spend", "self.items >= self._items or now >= self._until", "False"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "the time of a share is not looked at": (
        edited(Share, "spend", " or now >= self._until", ""),
        _test(turns.test_a_share_ends_when_its_time_is_over),
    ),
    "a turn of the loop has room for every share": (
        edited(InputTurns, "_turn", "self._waiting and self._left", "self._waiting"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "new connections have shares of their own beyond the turn": (
        edited(InputTurns, "arrived", "self._items <= 0 or self._seconds <= 0 or ", ""),
        _test(turns.test_all_clients_of_one_turn_share_its_time),
    ),
    "a client is served until it has nothing left": (
        edited(
            InputTurns,
            "_turn",
            "self._waiting.append(connection)",
            "self._waiting.appendleft(connection)",
        ),
        _test(turns.test_clients_are_served_round_robin),
    ),
    "a client is read while its frames wait": (
        edited(Connection, "pause_for_turn", "self._transport.pause_reading()", "pass"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "frames are handled though too many are unanswered": (
        edited(
            Connection, "handle", "not self.lost and not self._reading_stopped", "not self.lost"
        ),
        _test(turns.test_frames_behind_too_many_unanswered_requests_wait_undecoded),
    ),
    "a long list is made in one go": (
        edited(
            Connection,
            "answer_in_pieces",
            "self._answering = frame, pieces",
            "list(pieces)",
        ),
        _at_node(turns.test_a_list_of_queues_is_made_in_pieces_while_other_clients_are_answered),
    ),
    "an answer is sent without the messages that it counts": (
        edited(
            Output,
            "end_before_deferred",
            "itertools.takewhile(lambda item: isinstance(item, list), items)",
            "[item for item in items if isinstance(item, list)][:-1]",
        ),
        _sync(output.test_no_answer_is_sent_for_a_delivery_that_could_not_be_read_in_time),
    ),
    "a renewal in pieces goes on without a lease": (
        edited(Renewals, "_pieces", "not self._may_grant() or ", ""),
        _at_node(turns.test_a_renewal_in_pieces_ends_where_the_leader_may_grant_no_more),
    ),
    "a renewal outlasts a lock that takes it along": (
        edited(Renewals, "_pieces", "self._locks.ends_together(whole)", "pass"),
        _at_node(
            sessions.test_no_renewal_on_a_single_active_queue_outlasts_a_lock_that_it_does_not_name
        ),
    ),
    "a refused part of a publish does not end it": (
        edited(publishing, "joined", "if refused is not None:\n            break", "pass"),
        in_process(turns.test_the_first_refused_part_ends_a_publish),
    ),
    "a publish to several queues needs the permission of none": (
        edited(PublishingAcross, "_may_all", "return all(rights.may(", "return True or all(("),
        _at_node(across.test_each_queue_needs_its_permission),
    ),
    "a publish to several queues is one command however long that takes": (
        edited(PublishingAcross, "_may_all", "self._weight(asked) > _MOST", "False"),
        _at_node(across.test_what_takes_long_to_apply_goes_queue_by_queue_and_in_turns),
    ),
    "a repeat in a later part of a publish has its place in the part": (
        edited(publishing, "joined", "one.place + part * most", "one.place"),
        in_process(turns.test_the_first_refused_part_ends_a_publish),
    ),
    "a session is called gone by a node that may lead no more": (
        edited(Admission, "_unknown", "if not current:", "if False:"),
        _at_node(
            sessions.test_no_client_hears_that_its_session_is_gone_before_that_is_certain,
        ),
    ),
    "a question is answered without a proof that this node leads": (
        edited(Reads, "ask", "self._rounds.led_at() >= now", "True"),
        in_process(reads.test_a_leader_that_is_cut_off_answers_nothing_though_its_lease_holds),
    ),
    "an answer to an older round proves that this node leads": (
        edited(Reads, "look", "waiting[0].asked_at <= led_at", "led_at > 0"),
        in_process(reads.test_a_leader_that_is_cut_off_answers_nothing_though_its_lease_holds),
    ),
    "delayed messages are shown by the time of the last entry": (
        edited(
            Queries,
            "_one_queue",
            "views.delayed_of(self._machine, name, query.limit, now_ms)",
            "views.delayed_of(self._machine, name, query.limit, self._machine.cluster_time_ms)",
        ),
        _at_node(listings.test_delayed_messages_are_shown_by_the_leaders_clock),
    ),
    "the list of locks hides what the leader renews": (
        edited(views, "locks_of", "by_leader or None", "None"),
        _at_node(leader_renewals.test_the_leader_renews_without_a_log_entry_and_says_so),
    ),
    "a consumer whose places are all lost is shown like any that is suspected": (
        edited(views, "_suspected_why", ">= consumer", "> consumer"),
        _at_node(listings.test_a_consumer_whose_places_are_all_lost_is_shown_as_one),
    ),
    "bodies are left at the broker though another fetch under way wants them": (
        edited(Bodiless, "covers", " and not counts[_WHOLE]", ""),
        _sync(bodiless.test_bodies_are_left_out_only_where_all_fetches_under_way_leave_them_out),
    ),
    "a fetch that has ended leaves bodies out of the next": (
        edited(Bodiless, "end", "counts[_WHOLE if bodies else _BODILESS] -= 1", "pass"),
        _at_node(bodiless.test_each_fetch_of_a_consumer_gets_the_bodies_that_it_wants),
    ),
    "bodies are left at the broker by every fetch": (
        edited(Effects, "_deliver", "self.bodiless.covers((effect.session, effect.consumer))", "1"),
        _at_node(bodiless.test_each_fetch_of_a_consumer_gets_the_bodies_that_it_wants),
    ),
    "a fetch that wants no bodies gets them": (
        edited(Effects, "_deliver", "effect.repeat and", "False and"),
        _at_node(bodiless.test_each_fetch_of_a_consumer_gets_the_bodies_that_it_wants),
    ),
}

MUTANTS = tuple(
    Mutant("broker", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
