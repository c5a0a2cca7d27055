"""Plausible bugs of the machine: a golden story or the comparison with the model must notice each.

Owns the bugs, each as one place in the source of one function, and the hunts for them.
"""

from pathlib import Path

from fifo.machine import (
    checkout,
    consumers,
    deadletter,
    dedup,
    overflow,
    queries,
    returns,
)
from fifo.machine.snapshot import bodies, snapshot_layout
from fifo.machine.state import locks, ordering, ready
from fifo.machine.verbs import (
    durable,
    publish,
    queues,
    redrive,
    sessions,
    settle,
    subscribe,
    tick,
)
from fifo.words import handles
from tests.machine import (
    story,
    test_bounds,
    test_durables,
    test_locks,
    test_publish_across,
    test_sessions,
    test_settle,
)
from tests.machine.model import (
    driving,
    handing_bugs,
    publishing_bugs,
    returning_bugs,
    running_bugs,
    session_bugs,
    table_bugs,
)
from tests.mutants.hunting import Catch, Hunt, Mutant, named, scenario, seeds
from tests.mutants.switch import Switch, edited, entry

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))
MODEL_RUNS = 120
"""As many as the quick profile has: what is found later would not be found in CI."""
MODEL_STEPS = 80

BUGS: dict[str, Switch] = {
    "the floor of a new term is not applied": edited(
        locks,
        "_written_floor",
        "lagging and not session.disconnected",
        "False and not session.disconnected",
    ),
    "a floor leaves out the lease of a former leader": edited(
        locks,
        "_written_floor",
        "state.lead_ms + limits.LEASE_MS + max(consumer.lanes)",
        "state.lead_ms + max(consumer.lanes)",
    ),
    "a grace ends while a former leader may grant": edited(
        sessions,
        "grace_over",
        "if step.now < leases_end_ms:",
        "if False:",
    ),
    "a floor goes beyond max_lock": edited(
        locks,
        "deadline_ms",
        "min(floor_ms, held.checkout_ms + consumer.max_lock_ms)",
        "floor_ms",
    ),
    "the leader renews without end": edited(
        subscribe,
        "_set_options",
        "min(consumer.max_lock_ms, longest_ms)",
        "consumer.max_lock_ms",
    ),
    "the leader renews for a disconnected session": edited(
        locks,
        "is_renewed",
        "not session.disconnected",
        "True",
    ),
    "the leader renews for a session only while it is attached": edited(
        locks,
        "is_renewed",
        "not session.disconnected",
        "all(session.attached)",
    ),
    "a disconnect takes back the last renewal by the leader": edited(
        locks,
        "renew_last",
        "raise_floor(consumer, now_ms + max(consumer.lanes))",
        "pass",
    ),
    "a lock that the leader renews is promised for longer than is certain": edited(
        checkout,
        "repeat",
        "locks.certain_floor_of(state, consumer, state.cluster_time_ms)",
        "locks.floor_of(state, consumer)",
    ),
    "a lock that the leader renewed is looked for too late": edited(
        queries,
        "expired",
        "min(next_ms, now_ms + max(consumer.lanes))",
        "next_ms",
    ),
    "a renewal grants for certain what the leader may renew": edited(
        queries,
        "held",
        "locks.certain_floor_of(state, consumer, renewed_ms)",
        "locks.floor_of(state, consumer)",
    ),
    "a settlement does not clear the suspicion": edited(
        settle,
        "after",
        "consumers.prove_alive(step, consumer)",
        "pass",
    ),
    "what the client settles on its own clears the suspicion": edited(
        settle,
        "after",
        "consumer.lost_running) and not command.automatic",
        "consumer.lost_running)",
    ),
    "credit of the program does not clear the suspicion": edited(
        subscribe,
        "credit",
        "consumers.prove_alive(step, consumer)",
        "pass",
    ),
    "credit of the client alone clears the suspicion": edited(
        subscribe,
        "credit",
        "if not command.automatic:",
        "if True:",
    ),
    "a lost message whose handler runs takes no place": edited(
        consumers,
        "capacity",
        "consumer.prefetch - consumer.held - consumer.lost_running",
        "consumer.prefetch - consumer.held",
    ),
    "asking clears the suspicion though no place is free": edited(
        consumers,
        "asked",
        "consumer.held + lost < consumer.prefetch",
        "True",
    ),
    "asking clears the suspicion where order is promised": edited(
        consumers,
        "asked",
        'queue.spec.ordering == "none"',
        "True",
    ),
    "a command of the program frees no place of a lost message": edited(
        consumers,
        "prove_alive",
        "consumer.lost_running = 0",
        "pass",
    ),
    "a late word of lost messages takes the places that a command has freed": edited(
        consumers,
        "asked",
        "lost = min(lost, consumer.lost_running)",
        "pass",
    ),
    "a resume clears every suspicion": edited(
        sessions,
        "_resume",
        "if consumer.suspicion == Suspicion.TIMEOUT_WHILE_DISCONNECTED:",
        "if consumer.suspicion:",
    ),
    "a returned message goes to the front of its queue": edited(
        ready,
        "returned_front",
        "best: int | None = queue.returned.first() if queue.returned else None",
        "best: int | None = max(queue.returned) if queue.returned else None",
    ),
    "a disconnect is no failure": edited(
        returns,
        "way_of",
        "cause in (Cause.NACK, Cause.DISCONNECT)",
        "cause in (Cause.NACK,)",
    ),
    "count_timeouts is not asked": edited(
        returns,
        "way_of",
        "cause == Cause.TIMEOUT and spec.count_timeouts",
        "cause == Cause.TIMEOUT",
    ),
    "the backoff is one failure ahead": edited(
        returns,
        "_return_one",
        "backoff.delay_ms(way.delay, record.failures - way.counts)",
        "backoff.delay_ms(way.delay, record.failures)",
    ),
    "max_deliveries is off by one": edited(
        returns,
        "_return_one",
        "record.failures >= way.limit",
        "record.failures > way.limit",
    ),
    "a range of taken tokens is one short": edited(
        consumers,
        "_add_range",
        "taken.insert(place, (first, last, dead))",
        "taken.insert(place, (first, max(first, last - 1), dead))",
    ),
    "a token that was dead-lettered is reported as lost": edited(
        consumers,
        "_add_range",
        "taken.insert(place, (first, last, dead))",
        "taken.insert(place, (first, last, False))",
    ),
    "the resolved mark takes one token too many": edited(
        consumers,
        "resolve",
        "below = min(below, consumer.next_token)",
        "below = min(below + 1, consumer.next_token)",
    ),
    "a late ack settles what another has had since": edited(
        checkout,
        "_handed_out",
        "deadletter.forget_late(step, record)",
        "pass",
    ),
    "a dead letter keeps its failures": edited(
        deadletter,
        "bury",
        "FRESH._replace(dead_letter=letter)",
        "record._replace(dead_letter=letter)",
    ),
    "a dead letter keeps the history of one attempt only": edited(
        deadletter,
        "bury",
        "record.history[-limits.HISTORY :]",
        "record.history[-1:]",
    ),
    "the dedup window is not trimmed": edited(
        dedup,
        "forget_due",
        "order.first()[0] <= step.now",
        "order.first()[0] <= step.now - 1_000_000",
    ),
    "a repeat is confirmed by the id of the second publish": edited(
        dedup,
        "repeats",
        "Repeat(place, 1, held.producer, held.number)",
        "Repeat(place, 1, producer, numbers[place])",
    ),
    "a repeat within a batch is confirmed by its own id": edited(
        dedup,
        "repeats",
        "held.producer == producer and held.number >= numbers[place]",
        "held.producer == producer",
    ),
    "a dedup id that comes again stands for the newer publish": edited(
        dedup,
        "remember",
        "if name and not _remembers(step, queue, name):",
        "if name:",
    ),
    "a dedup id is remembered though its message was not stored": edited(
        publish,
        "_append",
        "sent, columns.dedup_ids, start, stop)",
        "sent, columns.dedup_ids, start, len(columns.dedup_ids))",
    ),
    "a lowered prefetch is not respected": edited(
        consumers,
        "capacity",
        "consumer.prefetch - consumer.held",
        "consumer.prefetch - consumer.held + (consumer.prefetch == 1)",
    ),
    "a prefetch set by credit has no bound": edited(
        subscribe,
        "_check_credit",
        "1 <= command.credit <= most",
        "True",
    ),
    "what is sent again goes into the next queue of the name": edited(
        publish,
        "_store",
        "0 < command.queue_below <= queue.number",
        "False",
    ),
    "what is sent again is refused by the queue that it was stored in": edited(
        publish,
        "_store",
        "queue.number and last < number",
        "queue.number",
    ),
    "a gap is not noticed": edited(
        publish,
        "_store",
        "command.previous > last:",
        "command.previous > last + 1:",
    ),
    "a single-active timeout returns only what expired": edited(
        returns,
        "time_out",
        'if queue.spec.ordering == "single_active" and not consumer.durable:',
        "if False:",
    ),
    "a challenger is fed while the other still holds": edited(
        consumers,
        "elect",
        "if active.held == 0:",
        "if active.held == 0 or _challenger(state, queue, active, stays=stays):",
    ),
    "a delayed return blocks nothing": edited(
        ordering,
        "delay",
        'skip = queue.spec.on_delay == "skip"',
        "skip = True",
    ),
    "the newest is dropped, not the oldest": edited(
        overflow,
        "_in_order_of_going",
        "yield from ready.ready_from(queue, low, end)",
        "yield from reversed(list(ready.ready_from(queue, low, end)))",
    ),
    "who released a message gets it at once": edited(
        returns,
        "way_of",
        "loses and consumer.base != Base.CANCELLED",
        "False",
    ),
    "a late close of an old connection detaches the new one": edited(
        sessions,
        "detach",
        "session.epochs[command.role] != command.epoch",
        "session.epochs[command.role] < command.epoch",
    ),
    "a message is handed out past its ttl": edited(
        checkout,
        "take_next",
        "ready.expires_ms(queue, position) <= step.now",
        "ready.expires_ms(queue, position) < step.now",
    ),
    "a cancelled consumer of a disconnected session keeps its locks": edited(
        sessions,
        "arm_grace",
        "if consumer.base == Base.CANCELLED:",
        "if False:",
    ),
    "a disconnect returns what a cancelled consumer holds": edited(
        sessions,
        "arm_grace",
        "limits.CANCELLED_MS if grace_ms is None",
        "0 if grace_ms is None",
    ),
    "a session that did nothing is kept when its client is gone": edited(
        sessions,
        "set_disconnected",
        "session.use == Use.NONE",
        "False",
    ),
    "a session that published ends with its connection": edited(
        publish,
        "_check_session",
        "use = int(Use.WRITING)",
        "use = 0",
    ),
    "a session that only wrote is kept as long as a consumer's": edited(
        sessions,
        "ends_ms",
        "bounds.SESSION_TIMEOUT_MS if consumes",
        "bounds.SESSION_TIMEOUT_MS if True",
    ),
    "an operator's end takes the numbers that a client still asks for": edited(
        sessions,
        "end_session",
        "session.use == Use.NONE or",
        "True or",
    ),
    "a user goes on owning what is gone": edited(
        queues,
        "remove",
        "state.note_owned(queue, -1)",
        "pass",
    ),
    "a dead-letter queue that comes with a queue belongs to no user": edited(
        queues,
        "_dead_letter_queue",
        "_create(step, target, QueueSpec(), user)",
        '_create(step, target, QueueSpec(), "")',
    ),
    "a longer grace prolongs a drain": edited(
        sessions,
        "arm_grace",
        "min(grace_ms, limits.CANCELLED_MS)",
        "grace_ms",
    ),
    "a resume leaves the time of a drain running": edited(
        sessions,
        "_resume",
        "step.arm(consumer, None)",
        "pass",
    ),
    "a cancelled consumer stays when its time is over": edited(
        sessions,
        "grace_over",
        "consumers.drop(step, consumer, elects=decides)",
        "step.arm(consumer, None)",
    ),
    "a further change of leader prolongs the time to resume": edited(
        sessions,
        "lead",
        "del state.resumes[limits.RESUMES - 1 :]",
        "state.resumes.clear()",
    ),
    "a drain leaves its credit": edited(
        subscribe,
        "credit",
        "if command.drain:",
        "if False:",
    ),
    "an evaluation takes locks that have not ended": edited(
        locks,
        "expired_in",
        "floor) <= now_ms:",
        "floor) <= now_ms + 1:",
    ),
    "a delay is over one millisecond late": edited(
        tick,
        "queue_due",
        "queue.delays[0][0] <= step.now",
        "queue.delays[0][0] < step.now",
    ),
    "somebody goes though that is not enough": edited(
        overflow,
        "victims_for",
        "if position is None:\n            return None",
        "if position is None:\n            return found",
    ),
    "a move passes over what waits for its key": edited(
        redrive,
        "_front",
        "queue.in_line, ",
        "",
    ),
    "a short delay forgets who released the message": edited(
        ordering,
        "due",
        "if avoided_ms > step.now:",
        "if False:",
    ),
    "a second release ends with the first one's second": edited(
        ready,
        "stop_avoiding",
        "if queue.avoid_ms.get(position) != until_ms:",
        "if position not in queue.avoid_ms:",
    ),
    "a wait after a release ends with the wait of somebody else": edited(
        ready,
        "stop_avoiding",
        "elif position in queue.delayed:",
        "else:",
    ),
    "a settlement resolves its own tokens": edited(
        settle,
        "after",
        "min(mark, command.ranges[0][0]) if command.ranges else mark",
        "mark",
    ),
    "a redrive does not count what it skips": edited(
        redrive,
        "go_on",
        "skipped=redrive.skipped + skipped",
        "skipped=redrive.skipped",
    ),
    "a redrive or a move drops live messages of a full target": edited(
        redrive,
        "_fits",
        "return not overflow.is_over(",
        'return target.spec.overflow == "drop_oldest" or not overflow.is_over(',
    ),
    "a key is known to the queue alone that it was published to": edited(
        publish,
        "_extras",
        "if keys is not None:",
        'if keys is not None and queue.spec.ordering == "key":',
    ),
    "an acknowledgement covers one notice alone": edited(
        sessions,
        "notice_ack",
        "(first := next(iter(session.notices))) <= command.notice",
        "(first := command.notice) in session.notices",
    ),
    "a notice that a connection lost keeps its number": edited(
        sessions,
        "detach",
        "_send_notices(step, session)",
        "pass",
    ),
    "a second resume leaves the chore of the first behind": edited(
        sessions,
        "_resume",
        "if not begun:",
        "if True:",
    ),
    "the mark of a resume comes before all was sent again": edited(
        sessions,
        "_send_again",
        "if session.resend is None:",
        "if True:",
    ),
    "what is new overtakes what is sent again": edited(
        consumers,
        "is_present",
        "and session.resend is None",
        "",
    ),
    "a failure is not counted": edited(
        returns,
        "_once_more",
        "before.failures + way.counts",
        "before.failures",
    ),
    "an entry of the deadline index is left behind": edited(
        locks,
        "_drop_lane",
        "state.lock_index.remove((lane.bound_ms, consumer.number, lane.lock_ms))",
        "pass",
    ),
    "a dead letter is copied, not moved": edited(
        deadletter,
        "transfer",
        "ready.remove(source, position, 1)",
        "pass",
    ),
    "a redrive step is carried out twice": edited(
        redrive,
        "go_on",
        "command.cursor != redrive.cursor",
        "command.cursor > redrive.cursor",
    ),
    "a long text of a dead letter keeps no entry of the log": edited(
        bodies,
        "_of_queue",
        "for text in letter.texts if isinstance(text, TextPlace)",
        "for text in letter.texts[3:] if isinstance(text, TextPlace)",
    ),
    "a long text of a dead letter is read one byte on": edited(
        settle,
        "_text",
        "TextPlace(step.index, *place)",
        "TextPlace(step.index, place[0] + 1, place[1])",
    ),
    "the dedup window is not in the snapshot": entry(
        snapshot_layout.FORMS["queue"],
        "dedup",
        (lambda _: {}, snapshot_layout.FORMS["queue"]["dedup"][1]),
    ),
    "a delivery has no label": edited(
        checkout,
        "deliver",
        "consumer.label",
        '""',
    ),
    "a repeated delivery has no label": edited(
        checkout,
        "repeat",
        "label=consumer.label",
        'label=""',
    ),
    "a label stays when its consumer subscribes again": edited(
        subscribe,
        "_set_options",
        'consumer.label = options.label or ""',
        'consumer.label = consumer.label or options.label or ""',
    ),
    "a notice that is sent again has no label": edited(
        sessions,
        "_send_notices",
        "*notice)",
        '*notice[:3], "")',
    ),
    "another session settles by the token alone": edited(
        settle,
        "_check_handles",
        "if not owner.user:",
        "if True:",
    ),
    "a handle is not compared": edited(
        settle,
        "_check_handles",
        "not handles.is_handle_of(handle, owner.handle_key, consumer.number, token)",
        "False",
    ),
    "only the first handle is compared": edited(
        settle,
        "_check_handles",
        "not handles.is_handle_of",
        "token == named[0] and not handles.is_handle_of",
    ),
    "one handle is right for all messages of a consumer": edited(
        handles,
        "is_handle_of",
        "handle_of(key, consumer, token)",
        "handle_of(key, consumer, 1)",
    ),
    "a reserve goes beyond its bytes": edited(
        checkout,
        "deliver",
        "(room is None or room > 0)",
        "True",
    ),
    "a fetch goes beyond its bytes": edited(
        checkout,
        "repeat_all",
        "(room is not None and room <= 0)",
        "False",
    ),
    "a fetch names what is behind its end as lost": edited(
        durable,
        "fetch",
        "rest - 1 if rest else command.last",
        "command.last",
    ),
    "a durable consumer's own nack at the limit counts as lost": edited(
        returns,
        "give_back",
        "(dead and not consumer.durable)",
        "dead",
    ),
    "an older generation gives a verdict": edited(
        durable,
        "_find",
        "found.durable != command.generation",
        "False",
    ),
    **session_bugs.BUGS,
    **publishing_bugs.BUGS,
    **returning_bugs.BUGS,
    **running_bugs.BUGS,
    **handing_bugs.BUGS,
    **table_bugs.BUGS,
}

DIRECTED = {
    "a lock that the leader renewed is looked for too late": (
        test_locks.test_a_lock_that_the_leader_renews_is_looked_at_within_one_lock,
    ),
    "a renewal grants for certain what the leader may renew": (
        test_locks.test_a_renewal_of_what_the_leader_renews_grants_what_is_certain,
    ),
    "a queue's messages in a publish to several have the headers of the first one's": (
        test_publish_across.test_each_queue_gets_what_it_would_get_alone,
    ),
    "numbers in a publish to several queues may begin before the one before": (
        test_publish_across.test_numbers_that_cannot_be_are_refused_for_their_queue_alone,
    ),
    "only the first handle is compared": (
        test_settle.test_a_wrong_handle_settles_nothing_in_any_session,
    ),
    "a resume replaces the secret of its session": (
        test_settle.test_a_handle_outlives_snapshots_changes_of_leader_and_resumes,
    ),
    "an acknowledgement covers one notice alone": (
        test_sessions.test_an_acknowledgement_covers_all_notices_up_to_its_number,
    ),
    "a notice that a connection lost keeps its number": (
        test_sessions.test_no_acknowledgement_covers_what_the_control_connection_lost,
    ),
    "a second resume leaves the chore of the first behind": (
        test_bounds.test_a_second_resume_with_little_left_to_send_leaves_no_chore_behind,
    ),
    "the mark of a resume comes before all was sent again": (
        test_bounds.test_a_resume_sends_again_in_slices_and_nothing_new_before_the_end,
    ),
    "what is new overtakes what is sent again": (
        test_bounds.test_a_resume_sends_again_in_slices_and_nothing_new_before_the_end,
    ),
    "a long text of a dead letter keeps no entry of the log": (
        test_settle.test_each_long_text_of_a_dead_letter_keeps_its_entry_of_the_log,
    ),
    "a second release ends with the first one's second": (
        test_settle.test_a_consumer_that_releases_a_message_again_avoids_it_for_another_second,
    ),
    "a fetch goes beyond its bytes": (
        test_durables.test_a_fetch_ends_with_the_message_that_fills_its_bytes_and_says_where_to_go_on,
    ),
    "a fetch names what is behind its end as lost": (
        test_durables.test_what_is_beyond_the_bytes_of_a_fetch_is_not_named_lost_by_it,
    ),
    "a durable consumer's own nack at the limit counts as lost": (
        test_durables.test_the_own_nack_at_the_limit_is_not_among_what_an_ack_could_not_settle,
    ),
    **running_bugs.DIRECTED,
    **handing_bugs.DIRECTED,
    **table_bugs.DIRECTED,
}
"""Scenarios that stories and random runs cannot replace: large ones, or rare ones."""


def _stories() -> Catch | None:
    """The golden stories with another outcome; the first two are named."""
    found = [f"`{path.stem}`" for path in GOLDEN if not _is_as_written(path.read_text())]
    if not found:
        return None
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    number = f"{len(found)} stor{'y' if len(found) == 1 else 'ies'}"
    return Catch("story " + ", ".join(found[:2]) + more, number)


def _is_as_written(text: str) -> bool:
    try:
        return story.run(text) == text
    except Exception:  # a story that breaks is one that notices
        return False


def _beside_the_model(seed: int) -> str | None:
    try:
        _, error = driving.run(seed, MODEL_STEPS)
    except (LookupError, TypeError, ValueError) as crash:  # apply never raises
        return repr(crash)
    return None if error is None else str(error)


def hunts(breaks: str) -> tuple[Hunt, ...]:
    """Scenarios of a bug's own, the golden stories, the comparison."""
    directed = [scenario(work, named(work)) for work in DIRECTED.get(breaks, ())]
    if breaks in running_bugs.BUGS:
        return (
            *directed,
            _stories,
            seeds(running_bugs.beside_the_model, "model", MODEL_RUNS, "runs"),
        )
    return *directed, _stories, seeds(_beside_the_model, "model", MODEL_RUNS, "runs")


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("machine", breaks, breaks, switch, hunts(breaks)) for breaks, switch in BUGS.items()
)
