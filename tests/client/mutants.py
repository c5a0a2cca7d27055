"""Plausible bugs of the client: a test with a scripted or a real node must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fifo.blocking import BlockingConsumer, connect
from fifo.client import client
from fifo.client.client import BaseClient
from fifo.client.connection.dialing import Dialer
from fifo.client.connection.link import Link
from fifo.client.connection.notices import NoticeAcks
from fifo.client.connection.pair import Pair
from fifo.client.connection.patience import Patience
from fifo.client.connection.session import Session
from fifo.client.connection.sources import Given
from fifo.client.consuming import verbs
from fifo.client.consuming.consumer import Consumer
from fifo.client.consuming.durable import DurableConsumer
from fifo.client.consuming.getting import Box, Getter
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.places import Places
from fifo.client.consuming.registry import Consumers
from fifo.client.consuming.settlement import Settlement
from fifo.client.consuming.settler import Settler
from fifo.client.consuming.tuning import Tuning
from fifo.client.publishing.confirms import Confirmed
from fifo.client.publishing.outbox import Outbox
from fifo.client.publishing.publish_stream import PublishFrame, PublishStream
from fifo.client.publishing.publisher import Singles
from fifo.client.publishing.queue_numbers import QueueNumbers
from fifo.wire.messages import STATUS_OK
from node.broker.connections.handshake import Handshake
from node.raft.elections import Elections
from tests.client import test_blocking
from tests.client import test_consuming as consuming
from tests.client import test_control as control
from tests.client import test_durable as durable
from tests.client import test_failing_backoffs as failing_backoffs
from tests.client import test_killed_leader as killed
from tests.client import test_lock_deadlines as deadlines
from tests.client import test_lost_locks as lost_locks
from tests.client import test_many_gets as many_gets
from tests.client import test_options as sources
from tests.client import test_outages as outages
from tests.client import test_places as places
from tests.client import test_publish_across as across
from tests.client import test_publishing as publishing
from tests.client import test_removed_consumers as removed
from tests.client import test_resumed as resumed
from tests.client import test_second_settlements as second
from tests.client import test_session_takeover as takeover
from tests.client import test_settling as settling
from tests.client import test_silent_leader as silent
from tests.client import test_tuning as tuning
from tests.client.test_control import PeerThread
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import Fixture, in_process
from tests.mutants.switch import Switch, edited
from tests.support.wire_peer import Peer


@contextmanager
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sources.Config]:
    """A configuration file."""
    config = sources.Config(tmp_path / "client.toml")
    monkeypatch.setenv("FIFO_CONFIG", str(config.path))
    yield config


@contextmanager
def _peer(thread: PeerThread) -> Iterator[Peer]:
    assert thread.peer is not None
    yield thread.peer


FIXTURES: Mapping[str, Fixture] = {
    "config": _config,
    "thread": test_blocking.answering,
    "peer": _peer,
    "client": lambda peer: connect(peer.url, close_timeout=0.5),
}
"""Of the tests of the client: a peer on a thread of its own, and the blocking client beside it."""


def _test(work: Callable[..., object], *values: object) -> Hunt:
    return in_process(work, *values, fixtures=FIXTURES)


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a second settlement is answered from memory": (
        edited(
            Settler,
            "_second",
            "first.followers.append(follower)\n        return SENT",
            "return SettleResult(Status.ALREADY_SETTLED)",
        ),
        _test(second.test_a_second_settlement_by_the_same_verb_joins_the_first, "ack"),
    ),
    "what a session that ended may have settled is called lost": (
        edited(Settler, "_fail", "elif not error.unknown:", "else:"),
        _test(
            second.test_across_an_ended_session_a_second_settlement_is_unknown_as_the_first_is,
        ),
    ),
    "another verb is answered by what the first one has": (
        edited(Settlement, "later", "ALREADY if result.status is Status.OK else result", "result"),
        _test(
            second.test_another_verb_waits_for_the_first_and_says_what_became_of_it,
            STATUS_OK,
            "already_settled",
        ),
    ),
    "two consumers of one client have one tag": (
        edited(Consumers, "free_tag", "if one not in taken", ""),
        _test(settling.test_consumers_of_one_tag_subscribe_under_tags_of_their_own),
    ),
    "what may be stored is sent again in the next session": (
        edited(PublishStream, "_may_be_stored", "return frame.sent and", "return False and"),
        _test(publishing.test_when_a_session_ended_late_sent_publishes_are_unknown),
    ),
    "what its session cannot hold ends unknown": (
        edited(
            PublishStream, "session_ended", "if was_gone else _was_sent", "if False else _was_sent"
        ),
        _test(
            publishing.test_a_publish_is_sent_again_where_its_session_is_gone_too_soon_to_hold_it
        ),
    ),
    "what was on its way to the old queue goes into the new one": (
        edited(PublishFrame, "below", "self.queue_below if self.in_doubt else 0", "0"),
        _test(publishing.test_what_is_sent_again_names_the_queue_that_it_was_for),
    ),
    "a client forgets which queue it has declared": (
        edited(QueueNumbers, "saw", "self._seen[queue] = number", "self._seen[queue] = 0"),
        _test(publishing.test_what_is_sent_again_is_for_the_queue_that_its_client_declared, 41),
    ),
    "a publisher goes on by what a deleted queue had stored": (
        edited(PublishStream, "_confirmed", "self.last_stored = 0", "pass"),
        _test(publishing.test_what_is_sent_again_names_the_queue_that_it_was_for),
    ),
    "a frame of several queues has no bound": (
        edited(Outbox, "put", "len(self._frames) >= wire.PUBLISH_QUEUES_MAX", "False"),
        _test(across.test_frames_of_several_queues_keep_to_their_bounds),
    ),
    "the clocks of one turn stand from then on": (
        edited(Outbox, "together", "self._now = None", "pass"),
        _test(across.test_a_client_that_slept_does_not_know_what_its_ended_session_has_stored),
    ),
    "a message gets the key of one whose caller has left": (
        edited(Singles, "pack", "list(compress(self._extras, waits))", "self._extras"),
        _test(publishing.test_messages_of_one_turn_keep_what_each_has_where_a_caller_leaves),
    ),
    "messages of one turn are all confirmed as new": (
        edited(Confirmed, "each", "if self.duplicates or self.repeats:", "if False:"),
        _test(publishing.test_each_message_of_a_turn_has_the_confirm_of_its_place),
    ),
    "what is sent together loses the queue that it was for": (
        edited(Outbox, "_send_together", "one.below()", "0"),
        _test(across.test_after_a_lost_connection_each_place_goes_again_with_its_numbers),
    ),
    "lost messages are taken for a gap that may close": (
        edited(PublishStream, "_gap", "expected < self.last_stored", "False"),
        _test(publishing.test_a_queue_that_has_lost_what_it_confirmed_is_reported_each_time),
    ),
    "a consumer stays with the queue that was deleted": (
        edited(Consumer, "removed", "self._subscribe_anew()", "pass"),
        _test(removed.test_a_removal_that_overtakes_the_number_of_its_consumer_is_heard),
    ),
    "a removal that comes before its consumer's number is forgotten": (
        edited(Session, "bind", "self.loop.call_soon(sink.removed)", "pass"),
        _test(removed.test_a_removal_that_overtakes_the_number_of_its_consumer_is_heard),
    ),
    "messages of a get outlive their queue": (
        edited(
            Box,
            "removed",
            "self._session.lose(ledger, ledger.unresolved(), suspected=False)",
            "pass",
        ),
        _test(removed.test_messages_of_a_get_are_lost_with_their_queue),
    ),
    "a get on one more queue keeps every consumer": (
        edited(Getter, "get", "self._leave_idle(limits.GETS_IDLE_MAX)", "pass"),
        _test(many_gets.test_the_idle_consumers_that_were_used_least_recently_are_left),
    ),
    "a consumer of get is cancelled and never resolved": (
        edited(Box, "leave", "self._session.tell(Settle(", "str(Settle("),
        _test(many_gets.test_a_consumer_whose_messages_were_all_lost_is_left),
    ),
    "the consumer of an abandoned get is forgotten": (
        edited(Getter, "_ask", "self._taken_late(queue, frame)", "pass"),
        _test(many_gets.test_the_consumer_of_an_abandoned_get_is_left_like_any_other),
    ),
    "a durable consumer hides that its tokens were forgotten": (
        edited(DurableConsumer, "_tokens", "if first < self._handed_below", "if False"),
        _test(durable.test_a_cluster_that_has_forgotten_what_it_handed_out_is_reported),
    ),
    "a consumer that is let go keeps what it has": (
        edited(Consumer, "__del__", "if ledger is not None:", "if False:"),
        _test(settling.test_deliveries_for_an_abandoned_consumer_are_returned),
    ),
    "an iterator is let go without a warning": (
        edited(
            Consumer,
            "__del__",
            "warnings.warn(text, ResourceWarning, source=self, stacklevel=2)",
            "pass",
        ),
        _test(settling.test_deliveries_for_an_abandoned_consumer_are_returned),
    ),
    "answers of an earlier term count": (
        edited(Link, "_take", "if self.retired:", "if False:"),
        _test(
            silent.test_nothing_of_an_earlier_term_is_read_once_a_later_leader_has_welcomed_us, 2, 0
        ),
    ),
    "a leader of an earlier term is joined beside one of a later": (
        edited(Pair, "join", "other.term > link.term", "False"),
        _test(silent.test_a_leader_of_an_earlier_term_than_ours_is_refused_while_ours_is_connected),
    ),
    "a client that was stopped itself takes its leader for silent": (
        edited(
            Patience,
            "is_over",
            "min(now - self._looked_at, patience_s / LOOKS)",
            "now - self._looked_at",
        ),
        _test(silent.test_patience_ends_after_its_time_and_not_by_a_pause_of_our_own),
    ),
    "a node that says nothing holds up the search": (
        edited(Dialer, "_round", "limits.STAGGER_S", "limits.OPENING_TIMEOUT_S"),
        _test(silent.test_a_node_that_accepts_and_says_nothing_holds_up_no_round),
    ),
    "a node sends a client away though it knows no leader": (
        edited(Handshake, "_send_on", "self._raft.knows_leader() or", "True or"),
        _test(killed.test_who_asks_while_a_leader_is_elected_waits_for_its_name_and_dials_little),
    ),
    "a question that is asked again forgets the answers to the first": (
        edited(Elections, "prepare_election", "self.prevote.number if early", "0 if False"),
        _test(
            killed.test_links_that_are_slower_than_a_question_is_repeated_delay_an_election_little
        ),
    ),
    "a backoff that fails takes its nack along": (
        edited(verbs, "chosen_delay", "return None", "raise"),
        _test(failing_backoffs.test_a_backoff_that_fails_loses_no_nack, failing_backoffs.no_delay),
    ),
    "a settlement of an outage waits for a connection without a count": (
        edited(Settler, "_send", "self._retry_later(settlement)", "pass"),
        _test(outages.test_without_retries_a_settlement_in_an_outage_is_reported_as_failed),
    ),
    "what was sent before an outage is not counted in it": (
        edited(Settler, "detached", "self._retry_later(settlement)", "pass"),
        _test(outages.test_without_retries_a_settlement_in_an_outage_is_reported_as_failed),
    ),
    "a settlement by numbers asks nothing about its queue": (
        edited(BaseClient, "settle", "if ledger is None and not await", "if False and not await"),
        _test(consuming.test_a_message_held_elsewhere_is_settled_by_its_numbers),
    ),
    "a settlement by numbers ignores the queue of its own consumer": (
        edited(BaseClient, "settle", "ledger.queue != queue", "False"),
        _test(consuming.test_a_message_held_elsewhere_is_settled_by_its_numbers),
    ),
    "notices that come while one waits are not acknowledged": (
        edited(NoticeAcks, "received", "max(self._last, notice)", "self._last or notice"),
        _test(control.test_one_acknowledgement_covers_all_notices_that_came, 0),
    ),
    "each lock of a single-active queue is believed in to its own end": (
        edited(Consumer, "_replace", "ledger.together = message.together", "pass"),
        _test(deadlines.test_locks_that_end_together_end_with_the_first),
    ),
    "the first lock of a single-active queue is one that is settled": (
        edited(
            LockLedger,
            "_first_end_of_all",
            "self._unresolved.intersection(first, last)",
            "((first, last),)",
        ),
        _test(deadlines.test_what_is_settled_ends_no_other_lock),
    ),
    "a fetched message is handed out though its lock has ended": (
        edited(
            BlockingConsumer,
            "_is_fresh",
            " and settler.environment.monotonic() < message.lock_ends_at",
            "",
        ),
        _test(
            test_blocking.test_a_fetched_message_whose_lock_ended_is_given_back_and_not_handed_out
        ),
    ),
    "consumers that another program left in the session are kept": (
        edited(Session, "_attach", "self._cancel_strangers()", "pass"),
        _test(takeover.test_consumers_that_another_program_left_in_the_session_are_cancelled),
    ),
    "a message that was being settled keeps its lock where its session ended": (
        edited(Settler, "_fail", "if ledger.void and not message.is_lost:", "if False:"),
        _test(consuming.test_a_message_whose_ack_was_never_sent_is_lost_where_its_session_ended),
    ),
    "the mark of a resume says nothing": (
        edited(Session, "frame_received", "self._all_sent_again()", "pass"),
        _test(resumed.test_what_is_not_sent_again_before_the_mark_is_lost),
    ),
    "a message whose settlement was given up hides that its lock was lost": (
        edited(
            Settler,
            "_fail",
            "if ledger.is_lost(message.token) and not message.is_lost:",
            "if False:",
        ),
        _test(resumed.test_a_settlement_that_is_given_up_after_the_mark_leaves_a_lost_message),
    ),
    "what a broken connection sent again counts for the next one": (
        edited(LockLedger, "resumed", "Ranges()", "self._known_again or Ranges()"),
        _test(resumed.test_a_connection_that_breaks_before_the_mark_loses_nothing),
    ),
    "renewals are counted by their frames, three to a lock": (
        edited(
            Consumer, "_replace", "options.renewals * lock_s\n", "options.renewals * lock_s / 3\n"
        ),
        _test(control.test_renewals_end_with_their_number_and_with_the_time_of_the_handler),
    ),
    "what the client renews is renewed by the leader as well": (
        edited(client, "consume_options", 'values["renewals"] = None', "pass"),
        _test(control.test_renewals_end_with_their_number_and_with_the_time_of_the_handler),
    ),
    "the query of a URL has no options of a consumer": (
        edited(client, "from_url", ".over(from_query(query))", ""),
        _test(sources.test_the_nearest_source_wins),
    ),
    "the configuration file is not read": (
        edited(client, "from_url", ".over(defaults)", ""),
        _test(sources.test_the_nearest_source_wins),
    ),
    "the farthest source of a consumer's option wins": (
        edited(
            Given,
            "over",
            "{**lower.consumer, **self.consumer}",
            "{**self.consumer, **lower.consumer}",
        ),
        _test(sources.test_the_nearest_source_wins),
    ),
    "a backoff that a file names is not called": (
        edited(client, "consume_options", "nack_delay=nack_delay", "nack_delay=None"),
        _test(sources.test_a_callable_from_a_file_delays_a_nack),
    ),
    "a handler of a lost message is not counted": (
        edited(LockLedger, "lost_running", "if token not in self.busy", ""),
        _test(lost_locks.test_asking_says_how_many_lost_messages_are_still_handled),
    ),
    "the end of a lost message's handler wakes no task that asks": (
        edited(Settler, "give_up", "ledger.asked = False", "pass"),
        _test(lost_locks.test_asking_says_how_many_lost_messages_are_still_handled),
    ),
    "asking is not repeated after an interruption": (
        edited(
            Consumer,
            "_ask",
            "self._session.tell(Alive(ledger.number, running))",
            "self._session.link.send(Alive(ledger.number, running), 99)",
        ),
        _test(lost_locks.test_asking_is_sent_again_until_it_is_answered),
    ),
    "a get hands out a message whose lock ran out": (
        edited(Getter, "_still_locked", "now >= ledger.deadline(token, delivery)", "False"),
        _test(lost_locks.test_get_hands_out_no_message_whose_lock_is_over),
    ),
    "a get hands out a message that was reported lost": (
        edited(Getter, "_still_locked", "ledger.is_lost(token)", "False"),
        _test(lost_locks.test_get_hands_out_no_message_whose_lock_is_over),
    ),
    "a renewal of a lost lock is not sent": (
        edited(Settler, "renew", "self.session.tell(request)", "pass"),
        _test(lost_locks.test_an_explicit_renewal_of_a_lost_lock_is_sent_as_a_sign_of_life),
    ),
    "what the client gives back on its own passes for the program": (
        edited(Settler, "_send", "automatic=not settlement.messages", "automatic=False"),
        _test(
            lost_locks.test_a_message_that_ran_out_in_the_buffer_is_given_back_and_not_handed_out
        ),
    ),
    "a prefetch that the client chose passes for the program": (
        edited(Tuning, "_ask", "automatic=True", "automatic=False"),
        _test(tuning.test_the_credit_of_a_chosen_prefetch_is_marked_as_the_library_s),
    ),
    "a program that settles nothing gets places without end": (
        edited(
            Places,
            "starved",
            "waiting if waiting > 1 else min(hands, limits.PLACES_IN_HAND - hands)",
            "waiting if waiting > 1 else hands",
        ),
        _test(places.test_a_program_that_settles_nothing_gets_a_hundred_and_no_more),
    ),
    "a slow worker takes messages ahead of their time": (
        edited(
            Places,
            "delivered",
            "is_slow or starved_s < worked_s * limits.STARVED_SHARE",
            "False",
        ),
        _test(places.test_a_slow_worker_holds_one_message_for_each_of_its_tasks),
    ),
    "a worker that becomes slow keeps its places": (
        edited(
            Places,
            "handed_out",
            "min(self.count, max(1, in_hand, self.count // 2))",
            "self.count",
        ),
        _test(places.test_a_worker_that_becomes_slow_gives_its_places_up),
    ),
    "a short lock does not bound what is buffered": (
        edited(
            Places,
            "__init__",
            "min(limits.BUFFERED_S, lock_s * limits.BUFFERED_PART_OF_LOCK)",
            "limits.BUFFERED_S",
        ),
        _test(places.test_a_short_lock_bounds_what_is_buffered),
    ),
    "large bodies do not bound the places": (
        edited(Places, "delivered", "if self.count > self._fitting:", "if False:"),
        _test(places.test_bodies_in_all_places_stay_below_the_bound_by_their_mean),
    ),
    "an empty queue is a reason for places": (
        edited(Places, "starved", "held < least", "False"),
        _test(places.test_an_empty_queue_is_no_reason_for_places, 74),
    ),
    "places are kept though all keys are out": (
        edited(Places, "keys_out", "min(self.count, kept)", "self.count"),
        _test(places.test_where_all_keys_are_out_a_quarter_of_what_is_held_is_given_back),
    ),
    "what was given back for the keys is taken again at once": (
        edited(Places, "delivered", "now < self._keys_out_until", "False"),
        _test(places.test_where_all_keys_are_out_no_round_trip_is_a_reason_for_places_for_a_while),
    ),
    "lost messages take the last place": (
        edited(Places, "beside", "min(lost, limits.PLACES_IN_HAND) + 1", "lost"),
        _test(places.test_one_place_stays_beside_lost_messages_within_a_bound),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("client", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
