"""The invariants of the state: those of semantics.md section 12, and of the records themselves.

Owns nothing; called by tests after every command, and by a node on a debug flag. Slow on purpose:
each invariant is computed the obvious way, from the messages up. A broken one raises
`AssertionError` with its name.
"""

from collections import Counter
from itertools import pairwise

from fifo.machine import consumers
from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES, TAKEN_RANGES
from fifo.machine.state import locks
from fifo.machine.state.records import LANE_SHIFT, Consumer, Item, Queue, State
from fifo.machine.types import NEVER_MS, Base, Suspicion

_MASK = BLOCK_MESSAGES - 1


def check(state: State) -> None:
    """Assert every invariant."""
    for queue in state.queues.values():
        _service(state, queue)
        if queue.deleted:  # what its consumers held has gone with them
            continue
        places = _places(state, queue)
        _one_place(queue, places)
        _counts(state, queue, places)
        _columns(queue, places)
        _records(state, queue, places)
        _single_active(state, queue)
        _keys(state, queue, places)
    for consumer in state.consumers.values():
        _consumer(state, consumer)
    _indexes(state)
    _tables(state)
    _users(state)


def _users(state: State) -> None:
    users = state.users.values()
    assert bool(state.users) == bool(state.users_revision), "users without a revision, or none left"
    operators = [user for user in users if user.operate and user.can_connect]
    assert not users or operators, "no user who can connect may operate"
    assert all(0 < user.revision <= state.users_revision for user in users), "a revision to come"
    digests = [token.digest for user in users for token in user.tokens]
    assert len(set(digests)) == len(digests), "a token of two users"


def _fresh(queue: Queue) -> list[int]:
    holes = list(queue.holes.ranges())
    for (_, end), (first, _) in pairwise(holes):
        assert end < first or end >> LANE_SHIFT != first >> LANE_SHIFT, "holes touch"
    gone = {position for first, end in holes for position in range(first, end)}
    found = []
    for lane, (head, tail) in enumerate(zip(queue.heads, queue.tails, strict=True)):
        assert lane << LANE_SHIFT <= head <= tail < (lane + 1) << LANE_SHIFT, "a lane is torn"
        assert head == tail or head not in gone, "a fresh range starts with a hole"
        assert head == tail or lane >= queue.front_lane, "a lane is passed over"
        found += [position for position in range(head, tail) if position not in gone]
    return found


def _places(state: State, queue: Queue) -> dict[str, list[int]]:
    locked: list[int] = []
    for number in queue.consumers:
        for held, _ in locks.all_holds(state.consumers[number]):
            locked += range(held.position, held.position + held.count)
    return {
        "fresh": _fresh(queue),
        "returned": list(queue.returned),
        "avoided": [position for held in queue.avoided.values() for position in held],
        "waiting": [position for held in queue.waiting.values() for position in held],
        "delayed": list(queue.delayed),
        "locked": locked,
    }


def _one_place(queue: Queue, places: dict[str, list[int]]) -> None:
    seen = Counter(position for held in places.values() for position in held)
    twice = [position for position, count in seen.items() if count > 1]
    assert not twice, f"{queue!r}: messages in two places: {twice[:3]}"
    for avoider, held in queue.avoided.items():
        assert held, f"an empty list of what consumer {avoider} avoids is kept"
    entries = set(queue.avoid_until)
    for avoider, held in queue.avoided.items():
        for position in held:
            entry = (queue.avoid_ms.get(position), position, avoider)
            assert entry in entries, "avoided for ever"
    somewhere = {*places["avoided"], *places["delayed"]}
    assert set(queue.avoid_ms) <= somewhere, "avoided, though neither ready nor delayed"
    assert list(queue.avoid_until) == sorted(queue.avoid_until, key=lambda entry: entry[0])
    assert sorted(places["waiting"]) == list(queue.in_line), "the line of the waiting is off"


def _counts(state: State, queue: Queue, places: dict[str, list[int]]) -> None:
    ready = sum(len(places[name]) for name in ("fresh", "returned", "avoided", "waiting"))
    assert queue.ready == ready, f"{queue!r}: {ready} are ready"
    assert queue.locked == len(places["locked"]), f"{queue!r}: {len(places['locked'])} are locked"
    held = sum(state.consumers[number].held for number in queue.consumers)
    assert queue.locked == held, f"{queue!r}: its consumers hold {held}"
    counted = queue.counters
    gone = ("acked", "exhausted_dropped", "overflow_dropped", "purged", "moved_out", "deleted")
    left = counted["published"] + counted["moved_in"] - sum(counted[name] for name in gone)
    # What expired or overflowed into the dead-letter queue is counted as moved out as well.
    left -= counted["expired"] - counted["dead_lettered_expired"]
    left += counted["dead_lettered_overflow"]
    assert queue.total == left, f"{queue!r}: the counters leave {left}"


def _columns(queue: Queue, places: dict[str, list[int]]) -> None:
    positions = [position for held in places.values() for position in held]
    live = Counter(position >> BLOCK_BITS for position in positions)
    size = 0
    for position in positions:
        block = queue.blocks[position >> BLOCK_BITS]
        size += block.sizes[position & _MASK]
    assert queue.bytes == size, f"{queue!r}: its bytes are {size}, not {queue.bytes}"
    assert queue.live.keys() == queue.blocks.keys(), "blocks without a count of what lives"
    for key, block in queue.blocks.items():
        assert queue.live[key] == live[key], f"block {key} has {live[key]} living messages"
        tail = queue.tails[key >> (LANE_SHIFT - BLOCK_BITS)]
        assert live[key] or tail < (key + 1) << BLOCK_BITS, "a dead block is kept"
        if block.expires is not None:
            _expiry(queue, key, places)
    assert sorted((bound, key) for key, bound in queue.expiry_of.items()) == list(queue.expiries)


def _expiry(queue: Queue, key: int, places: dict[str, list[int]]) -> None:
    expires = queue.blocks[key].expires
    assert expires is not None, "a block without ttls has no expiries"
    waiting = [
        expires[position & _MASK]
        for name, held in places.items()
        if name != "locked"
        for position in held
        if position >> BLOCK_BITS == key
    ]
    first = min(waiting, default=NEVER_MS)
    bound = queue.expiry_of.get(key, NEVER_MS)
    assert bound <= first, "a message expires before its block's bound"


def _records(state: State, queue: Queue, places: dict[str, list[int]]) -> None:
    fresh = set(places["fresh"])
    here = {position for held in places.values() for position in held}
    locked = set(places["locked"])
    for position, record in queue.records.items():
        assert position in here, "a record of a message that is gone"
        assert position not in fresh, "a record in a fresh range"
        assert record.failures <= record.attempts, "more failures than attempts"
        if record.consumer in state.consumers and record.consumer:
            late = state.consumers[record.consumer].late
            assert position not in locked, "a locked message can be settled late"
            assert late.get(record.token) == position, "a late token is not known"
        limit = queue.spec.failures_max
        assert limit is None or record.failures <= limit or limit < record.attempts, "not dead"


def _single_active(state: State, queue: Queue) -> None:
    if queue.spec.ordering != "single_active":
        assert queue.active is None, "an active consumer on an ordinary queue"
        return
    holders = [number for number in queue.consumers if state.consumers[number].held]
    assert len(holders) <= 1, f"{queue!r}: held by {holders}"
    active = [
        number
        for number in queue.consumers
        if state.consumers[number].base == Base.ACTIVE and not state.consumers[number].implicit
    ]
    assert len(active) <= 1, f"{queue!r}: active are {active}"
    assert not active or queue.active == active[0], f"{queue!r}: active is {queue.active}"


def _service(state: State, queue: Queue) -> None:
    keys = []
    for number in queue.consumers:
        consumer = state.consumers[number]
        assert consumer.queue == queue.number, "a consumer of another queue"
        if consumer.service_key is not None:
            keys.append(consumer.service_key)
            assert consumers.capacity(consumer) > 0, f"{consumer!r} is served without room"
            assert consumer.suspicion == Suspicion.NONE, f"{consumer!r} is served"
            assert consumer.base == Base.ACTIVE, f"{consumer!r} is served"
        elif consumers.is_eligible(state, consumer) and consumer.base == Base.ACTIVE:
            idle = queue.handover or consumers.capacity(consumer) <= 0
            assert idle, f"{consumer!r} is forgotten"
    assert sorted(keys) == queue.service, f"{queue!r}: the service order is off"
    ranks = Counter(state.consumers[number].priority for number in queue.consumers)
    assert ranks == queue.ranks, f"{queue!r}: its consumers' priorities are miscounted"
    subscribed = sum(not state.consumers[number].implicit for number in queue.consumers)
    assert subscribed == queue.subscribed, f"{queue!r}: {subscribed} are subscribed"
    if queue.deleted:
        assert ("delete", queue.number, 0) in state.chores, "a deleted queue that stays for ever"
        return
    nothing_left = queue.paused or not queue.ready or not keys or queue.number in state.pending
    stale = any(_is_lagging(state, key[2]) for key in keys)
    held_back = queue.avoided or queue.blocking or queue.waiting
    assert nothing_left or stale or held_back, f"{queue!r}: ready messages and free consumers"


def _is_lagging(state: State, number: int) -> bool:
    session = state.sessions.get(state.consumers[number].session)
    return session is not None and not consumers.is_present(state, session)


def _keys(state: State, queue: Queue, places: dict[str, list[int]]) -> None:
    if queue.spec.ordering != "key":
        assert not queue.busy_keys, "busy keys where keys do not order"
        assert not queue.waiting, "messages that wait for keys where keys do not order"
        assert not queue.runs, "runs of keys where keys do not order"
        return
    out = {at for name in ("locked", "delayed", "returned", "avoided") for at in places[name]}
    for key, position in queue.busy_keys.items():
        assert position in out, "a key is busy with a message that cannot pass it on"
        column = queue.blocks[position >> BLOCK_BITS].key_hashes
        assert column is not None, "a busy key without hashes"
        assert column[position & _MASK] == key, "a key is busy with another key's message"
    for position in places["locked"]:
        column = queue.blocks[position >> BLOCK_BITS].key_hashes
        if column is not None and column[position & _MASK]:
            key = column[position & _MASK]
            out_too = position in queue.runs.get(key, ())
            assert queue.busy_keys[key] == position or out_too, "two of one key are out"
    _runs(state, queue, places)
    for key, held in queue.waiting.items():
        assert held, "an empty list of waiting messages is kept"
        assert key in queue.busy_keys, "messages wait for a key that is free"


def _runs(state: State, queue: Queue, places: dict[str, list[int]]) -> None:
    """Several of a key that are out are locked or delayed; a runner has all of them locked."""
    held = {*places["locked"], *places["delayed"]}
    for key, others in queue.runs.items():
        assert others, "an empty run is kept"
        assert queue.busy_keys[key] not in others, "a message is out twice"
        assert held.issuperset([queue.busy_keys[key], *others]), "one of several out is ready"
        for position in others:
            column = queue.blocks[position >> BLOCK_BITS].key_hashes
            assert column is not None, "a run without hashes"
            assert column[position & _MASK] == key, "a foreign key in a run"
    for key, runner in queue.runners.items():
        assert key in queue.busy_keys, "a free key has a runner"
        holds = [part for part, _ in locks.all_holds(state.consumers[runner])]
        for position in [queue.busy_keys[key], *queue.runs.get(key, ())]:
            mine = any(one.position <= position < one.position + one.count for one in holds)
            assert mine, "a runner has not all of its key that is out"


def _consumer(state: State, consumer: Consumer) -> None:
    assert consumer.held <= consumer.prefetch or consumer.service_key is None, "above its prefetch"
    total = 0
    for lock_ms, lane in consumer.lanes.items():
        assert lane.lock_ms == lock_ms, "a lane under another duration"
        if not lane.holds:
            assert len(consumer.lanes) == 1, "an empty lane beside another one"
            continue
        total += sum(held.count for held in lane.holds)
        first = min(held.checkout_ms for held in lane.holds) + lock_ms
        assert lane.bound_ms <= first, "an index entry behind a deadline"
        ends = [(held.first, held.first + held.count, held.checkout_ms) for held in lane.holds]
        for before, after in pairwise(ends):
            assert before[1] <= after[0], "holds overlap"
            assert before[2] <= after[2], "holds are not in deadline order"
        assert ends[-1][1] <= consumer.next_token, "a token that was never given out"
    assert consumer.held == total, f"{consumer!r} holds {total}"
    assert len(consumer.taken) <= TAKEN_RANGES, "too many taken ranges"
    for (_, end, _), (first, _, _) in pairwise(consumer.taken):
        assert end < first, "taken ranges overlap"
    queue = state.queues[consumer.queue]
    for token, position in consumer.late.items() if not queue.deleted else ():
        record = queue.records[position]
        assert (record.consumer, record.token) == (consumer.number, token), "a stale late token"
    if consumer.session:
        session = state.sessions[consumer.session]
        assert consumer.number in session.consumers, "an orphan"
        assert consumer.timer_ms is None or session.disconnected, "a grace while connected"
        left = consumer.base == Base.CANCELLED and session.disconnected
        going = consumer.timer_ms is not None or consumer.leaving is not None
        assert not left or going, f"{consumer!r} keeps its locks for ever"


def _indexes(state: State) -> None:
    wanted = sorted(
        (lane.bound_ms, consumer.number, lane.lock_ms)
        for consumer in state.consumers.values()
        for lane in consumer.lanes.values()
    )
    assert wanted == list(state.lock_index), "the lock index does not cover exactly the locks"
    items: list[Item] = [
        *state.sessions.values(),
        *state.consumers.values(),
        *state.producers.values(),
        *state.queues.values(),
    ]
    timers = [
        (item.timer_ms, item.kind, item.number) for item in items if item.timer_ms is not None
    ]
    assert sorted(timers) == list(state.timers), "the index of times is off"
    for queue in state.queues.values():
        delays = sorted((due_ms, position) for position, (due_ms, _) in queue.delayed.items())
        assert delays == list(queue.delays), f"{queue!r}: the index of delays is off"
        if queue.deleted:
            assert queue.timer_ms is None, "a deleted queue is due"
            continue
        first = min(
            [due for due, _ in delays[:1]] + [b for b, _ in queue.expiries[:1]], default=None
        )
        late = first is not None and (queue.timer_ms is None or queue.timer_ms > first)
        assert not late, f"{queue!r}: it is due without a timer"


def _tables(state: State) -> None:
    for session in state.sessions.values():
        if session.end_cause is None:
            assert state.session_ids[session.session_id] == session.number, "a nameless session"
        assert session.producer in state.producers, "a session without its producer"
        chores = state.chores.count(("resend", session.number, 0))
        assert chores == (session.resend is not None), "a resend that no chore continues"
        for number in session.consumers:
            assert state.consumers[number].session == session.number, "a foreign consumer"
        leaving = sum(state.consumers[number].leaving is not None for number in session.consumers)
        assert leaving == session.leaving, "the leaving consumers of a session are miscounted"
    assert len(state.session_ids) == sum(s.end_cause is None for s in state.sessions.values())
    for name, number in state.queue_names.items():
        assert state.queues[number].name == name, "a queue under another name"
        target = state.queues[number].spec.dead_letter
        assert target is None or target in state.queue_names, "a dead-letter queue is missing"
    queues = [queue for queue in state.queues.values() if not queue.deleted]
    assert len(state.queue_names) == len(queues), "a nameless queue"
    items: list[Item] = [*state.sessions.values(), *state.consumers.values(), *queues]
    owned = Counter((item.kind, item.user) for item in items)
    named_producers = (p for p in state.producers.values() if p.name is not None)
    owned.update((producer.kind, producer.user) for producer in named_producers)
    assert owned == state.owned, "the items of a user are miscounted"
    named = Counter(queue.spec.dead_letter for queue in queues)
    del named[None]
    assert named == state.dead_letter_users, "the users of dead-letter queues are miscounted"
