"""The rules of docs/history.md as conditions on the tables of `tables`.

Owns one line per way to break a rule. `Rule` names the table, what must not be true of a row, the
subject, the words, and the events that show it. Rules on the same table are found in one pass over
it. S12, V1 and V3 need no table: `specs.judge` has them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.check.specs import Finding, Rare
from bench.check.tuning import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from bench.check.tables import Tables

RATE_ERROR = 0.05
"""Clocks of two machines differ by this part at most, and a little."""

CLOCK_S = 0.005
"""Both times of a delay are read from a clock of milliseconds (S8)."""

CALL_SLACK_S = 0.5
"""A call may outlive its timeout by this (V4)."""

LASTING_P99_S = 5.0
LASTING_SETTLE_S = 2.0
"""A publish under a lasting fault, and from its begin on this much does not count (V2)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to break a rule. Everything but the name is SQL over the table's columns."""

    name: str
    broken: str
    subject: str
    text: str
    shown: str
    """The indexes of the events that show it, separated by commas."""


def too_soon(asked: str, again: str, delay: str) -> str:
    """A delay that was not over."""
    return f"{again} < {asked} + {delay} * {1 - RATE_ERROR} - {CLOCK_S}"


SURE = """(
  SELECT e.id, e.index, h.newer_min, h.single
  FROM (SELECT * FROM flat WHERE f = 'holds' DISTRIBUTE BY id) e
  JOIN (SELECT * FROM hand_outs WHERE first_of_key) h
    ON h.id = e.id AND h.consumer = e.consumer AND h.token = e.token)"""

RENEWED = """(
  SELECT e.id, e.index, e.granted, h.newer_min
  FROM (SELECT *, lead(struct(type, index)) OVER
      (PARTITION BY id, process, consumer, token ORDER BY index) AS granted
    FROM (SELECT * FROM flat WHERE f = 'renew' AND type IN ('invoke', 'ok') DISTRIBUTE BY id)) e
  JOIN (SELECT * FROM hand_outs WHERE first_of_key) h
    ON h.id = e.id AND h.consumer = e.consumer AND h.token = e.token
  WHERE e.type = 'invoke' AND e.granted.type = 'ok')"""


def _latest(lane: str, held: str) -> str:
    """Holds with the one before that was settled last, within a lane."""
    return f"""(
  SELECT *, max(struct(asked, received, consumer, token)) OVER
    (PARTITION BY {lane} ORDER BY received, asked
     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last
  FROM {held})"""


BACK = """(
  SELECT s.*, h.index AS back
  FROM (SELECT id, held_queue, place, handed, asked, answered FROM settlements
    WHERE done AND verb = 'terminate') s
  JOIN (SELECT id, queue, place, index FROM hand_outs WHERE place > 1) h
    ON h.id = s.id AND h.queue = s.held_queue AND h.place > s.place)"""

TWICE_ACKED = """(
  SELECT id, held_queue, count(DISTINCT consumer, token) AS tokens, min(asked) AS one,
    max(asked) AS other
  FROM settlements WHERE done AND verb = 'ack' GROUP BY id, held_queue)"""

RECEIVED = """(
  SELECT s.id, s.queue, s.asked, s.answered, d.index AS received, d.queue AS received_queue
  FROM (SELECT * FROM settled WHERE done) s LEFT JOIN (SELECT * FROM delivered WHERE first_seen) d
    ON d.id = s.id AND d.consumer = s.consumer AND d.token = s.token)"""

HELD_TWICE = """(SELECT held.* FROM held LEFT SEMI JOIN (
  SELECT id FROM delivered WHERE first_seen GROUP BY id HAVING count(*) > 1) d ON d.id = held.id)"""

TOKENS = """(
  SELECT id, index, token, lag(struct(token, index)) OVER
    (PARTITION BY consumer ORDER BY index) AS last
  FROM flat WHERE f = 'checkout')"""

KNOWN = """(
  SELECT d.id, d.index, d.attempt, d.failures, c.index AS handed,
    c.attempt AS own_attempt, c.failures AS own_failures
  FROM delivered d LEFT JOIN (
    SELECT id, consumer, token, last.* FROM (
      SELECT id, consumer, token, max(struct(index, attempt, failures)) AS last
      FROM checkouts GROUP BY id, consumer, token)) c
  ON c.id = d.id AND c.consumer = d.consumer AND c.token = d.token)"""

PAIRS = """(
  SELECT s.*, s.attempt - before.attempt AS steps, s.failures - before.failures AS grown,
    CASE WHEN a.own_done AND s.attempt - before.attempt = 1 THEN a.own_verb END AS verb
  FROM stays s LEFT JOIN answers a
    ON a.id = s.id AND a.consumer = before.consumer AND a.token = before.token
  WHERE NOT fresh)"""

LOCKS = """(
  SELECT h.*, live_before AS held,
    least(coalesce(a.own_asked, h.index), coalesce(c.index, h.index)) AS given_up
  FROM hand_outs h
  LEFT JOIN answers a ON a.id = h.id AND a.consumer = h.live_before.consumer
    AND a.token = h.live_before.token
  LEFT JOIN cancelled c ON c.consumer = h.live_before.consumer
  WHERE NOT in_grave AND live_before IS NOT NULL
    AND failures - live_before.failures = 1 AND NOT live_before.single)"""

LETTERS = """(
  SELECT d.id, d.index, coalesce(d.reason, 'none') AS reason, m.terminated, m.alive_last,
    q.source_max, q.reasons
  FROM delivered d JOIN queues q ON q.name = d.queue AND q.grave
  LEFT JOIN by_message m ON m.id = d.id)"""

COPIES = """(
  SELECT body, id, seen, ids, first_body FROM (
    SELECT body, id, seen, count(*) OVER (PARTITION BY body) AS ids,
      first(body) OVER (PARTITION BY id ORDER BY order) AS first_body
    FROM (
      SELECT body, id, min(struct(place, index)) AS order, min(index) AS seen FROM (
        SELECT body, id, 0 AS place, first_confirm AS index FROM bodies WHERE id IS NOT NULL
        UNION ALL SELECT body, id, 1, index FROM delivered) named
      LEFT JOIN odd_bodies ON odd_bodies.hash = xxhash64(body)
      LEFT JOIN odd_ids ON odd_ids.hash = xxhash64(id)
      WHERE odd_bodies.hash IS NOT NULL OR odd_ids.hash IS NOT NULL
      GROUP BY body, id))
  WHERE ids > 1 OR first_body <> body)"""

PHANTOMS = """(
  SELECT d.body, d.index, d.intact, b.invoke_index, b.refused
  FROM (SELECT body, index, intact FROM delivered
    JOIN odd_bodies ON odd_bodies.hash = xxhash64(body)) d
  LEFT JOIN bodies b ON b.body = d.body)"""

LOST = """(
  SELECT m.*, keep.first_kept, keep.last_kept
  FROM (SELECT * FROM messages WHERE NOT may_have_acked) m
  JOIN (SELECT confirm_queue, count(*) AS gone FROM messages WHERE NOT may_have_acked GROUP BY 1) g
    ON g.confirm_queue = m.confirm_queue
  LEFT JOIN explained e ON e.queue = m.confirm_queue
  LEFT JOIN kept keep ON keep.process = m.confirm_process
  WHERE g.gone > coalesce(e.count, 0))"""

DELAYED = "(SELECT * FROM messages WHERE delay_s > 0 AND first IS NOT NULL)"

KEYED = """(
  SELECT *, max(struct(finished, confirm_index)) OVER
    (PARTITION BY confirm_process, key ORDER BY invoke_index
     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS elder
  FROM (SELECT m.* FROM messages m JOIN queues q ON q.name = m.confirm_queue
    WHERE q.ordering = 'key' AND NOT q.grave AND m.key IS NOT NULL AND m.plain))"""

LINED_UP = """(
  SELECT *, max(struct(first.token, first.index)) OVER
    (PARTITION BY confirm_process, first.consumer ORDER BY invoke_index
     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS elder
  FROM (SELECT m.* FROM messages m JOIN lined_up l ON l.name = m.confirm_queue
    WHERE m.plain AND m.first.attempt = 1 AND NOT m.first.in_grave))"""

UNFENCED = "done AND newer_min < asked"
GONE = (
    "CASE WHEN first_kept IS NULL OR confirm_index < first_kept THEN 'prefix'"
    " WHEN confirm_index > last_kept THEN 'postfix' ELSE 'middle' END"
)


def rules(rare: Rare, made: Tables) -> dict[str, list[Rule]]:
    """The rules that apply to a history, by table."""
    traced = made.traced
    found: dict[str, list[Rule]] = defaultdict(list)

    def on(table: str, *some: Rule) -> None:
        found[table] += some

    on(
        LOST,
        Rule(
            "S1", "true", "body",
            f"concat('confirmed, and gone (', {GONE}, ' of ', confirm_process, ')')",
            "confirm_index",
        ),
    )  # fmt: skip
    on(
        PHANTOMS,
        Rule("S2", "invoke_index IS NULL", "body", "'no producer published this'", "index"),
        Rule(
            "S2", "invoke_index IS NOT NULL AND refused IS NOT NULL", "body",
            "'refused, and delivered'", "refused, index",
        ),
        Rule(
            "S2", "invoke_index IS NOT NULL AND refused IS NULL AND NOT intact", "body",
            "'not what was published'", "index",
        ),
    )  # fmt: skip
    on(
        COPIES,
        Rule("S2b", "ids > 1", "body", "'is there under several ids'", "seen"),
        Rule(
            "S2b", "ids = 1 AND first_body <> body", "body",
            "concat('has the id of ', first_body)", "seen",
        ),
    )  # fmt: skip
    _settling(on, rare)
    _holding(on, rare)
    _counting(on, rare, traced=traced)
    _burying(on, rare, traced=traced)
    _ordering(on, rare, made)
    on(
        "(SELECT * FROM flat WHERE f = 'call')",
        Rule(
            "V4", f"seconds > limit_s * {1 + RATE_ERROR} + {CALL_SLACK_S}", "process",
            "concat('a call outlived its timeout: ', what, ', ', seconds, ' s')", "index",
        ),
    )  # fmt: skip
    if traced:
        on(
            TOKENS,
            Rule(
                "S5", "token <= last.token", "id",
                "concat('token ', token, ' after ', last.token)", "last.index, index",
            ),
        )  # fmt: skip
        on(
            KNOWN,
            Rule("S5", "handed IS NULL", "id", "'a delivery that no leader handed out'", "index"),
            Rule(
                "S6", "attempt <> own_attempt OR failures <> own_failures", "id",
                "'the client received another count'", "handed, index",
            ),
        )  # fmt: skip
    return dict(found)


def _settling(on: _On, rare: Rare) -> None:
    """S3, S5 and the delays of S8, by settlement."""
    shown = "handed, asked, answered"
    # What died while it waited, and came back from its grave, begins anew.
    anew = "next.attempt = 1" if rare.redriven else "false"
    on(
        "settlements",
        Rule(
            "S3", "done AND verb = 'ack' AND newer_max > asked", "id",
            "'came back after its ack'", f"{shown}, newer_max",
        ),
        Rule("S5", UNFENCED, "id", "'an old token settled it'", f"newer_min, {shown}"),
        Rule(
            "S5", "done AND late AND verb IN ('nack', 'release')", "id",
            "'a late return was carried out'", shown,
        ),
        Rule(
            "S8",
            "done AND verb IN ('nack', 'release') AND delay_s > 0 AND NOT next.in_grave AND NOT "
            + f"({anew}) AND "
            + too_soon("asked_time", "next.time", "delay_s"),
            "id", "concat('came back too soon: after ', round(next.time - asked_time, 3), ' s of ',"
            " delay_s)", f"{shown}, next.index",
        ),
    )  # fmt: skip
    if not rare.redriven:
        on(
            BACK,
            Rule(
                "S3", "back > asked", "id", "'came back after its terminate'", f"{shown}, back",
            ),
        )  # fmt: skip
    on(
        RECEIVED,
        Rule(
            "S5", "coalesce(received > asked, true)", "id",
            "'settled by a token that no client had received'", "asked, answered",
        ),
        Rule(
            "S5", "received < asked AND queue <> received_queue", "id",
            "'settled in another queue'", "received, asked, answered",
        ),
    )  # fmt: skip
    on(TWICE_ACKED, Rule("S5", "tokens > 1", "id", "'acked under two tokens'", "one, other"))
    on(
        DELAYED,
        Rule(
            "S8", too_soon("coalesce(invoke_time, confirm_time)", "first.time", "delay_s"), "id",
            "'came before its delay was over'", "invoke_index, first.index",
        ),
    )  # fmt: skip


def _holding(on: _On, rare: Rare) -> None:
    """S4 and S10, by hold."""
    on(
        SURE,
        Rule(
            "S4", "newer_min < index AND NOT single", "id",
            "'held, and somebody else has it'", "index, newer_min",
        ),
    )  # fmt: skip
    on(
        RENEWED,
        Rule(
            "S4", "newer_min < index", "id",
            "'renewed by one who had lost it'", "newer_min, index, granted.index",
        ),
    )  # fmt: skip
    on(
        _latest("id", HELD_TWICE),
        Rule(
            "S4", "(last.consumer <> consumer OR last.token <> token) AND received < last.asked",
            "id", "'two held it at once'", "last.received, received, last.asked, asked",
        ),
    )  # fmt: skip
    if not any(queue.ordering == "single_active" for queue in rare.queues().values()):
        return
    on(
        _latest("queue", "held WHERE single"),
        Rule(
            "S10", "last.consumer <> consumer AND received < last.asked", "queue",
            "'two consumers held messages at once'", "last.received, received, last.asked, asked",
        ),
    )  # fmt: skip


def _counting(on: _On, rare: Rare, *, traced: bool) -> None:
    """S6 and S9, by hand-out."""
    neighbour = "attempt <> number" if traced else "false"
    on(
        "stays",
        Rule(
            "S6", neighbour, "id", "concat('attempt ', attempt, ' is the number ', number)", "index"
        ),
        Rule(
            "S6", "failures >= attempt", "id",
            "concat(failures, ' failures before attempt ', attempt)", "index",
        ),
        Rule(
            "S6", "max_deliveries > 0 AND NOT in_grave AND failures >= max_deliveries", "id",
            "concat('delivered at the limit of ', max_deliveries)", "index",
        ),
    )  # fmt: skip
    backwards = "false" if traced else "steps <= 0"
    on(
        PAIRS,
        Rule("S6", backwards, "id", "'an attempt that was before'", "before.index, index"),
        Rule(
            "S6",
            f"NOT ({backwards}) AND NOT (CASE verb WHEN 'nack' THEN grown = 1"
            " WHEN 'release' THEN grown = 0 ELSE grown BETWEEN 0 AND greatest(steps, 1) END)",
            "id", "concat('failures grew by ', grown)", "before.index, index",
        ),
    )  # fmt: skip
    early = (
        "at_ms < held.at_ms + held.lock_ms"
        if traced
        else "held.transit_s IS NOT NULL AND attempt = held.attempt + 1 AND"
        f" time < held.time + held.lock_ms / 1000 * {1 - RATE_ERROR} - held.transit_s"
    )
    on(
        LOCKS,
        Rule(
            "S9", f"given_up >= index AND {early}", "id",
            "'taken before its lock ended'", "held.index, index",
        ),
    )  # fmt: skip


def _burying(on: _On, rare: Rare, *, traced: bool) -> None:
    """S7: dead letters."""
    if rare.drained:
        nowhere = "alive_first IS NOT NULL AND buried IS NULL AND terminated IS NOT NULL"
        if rare.redriven:
            nowhere += " AND NOT came_back"
        on(
            "by_message",
            Rule(
                "S7", nowhere, "id",
                "'terminated, and no dead letter'", "terminated",
            ),
        )  # fmt: skip
    wrong = "NOT array_contains(reasons, reason)"
    if not rare.redriven:
        wrong += " OR (terminated IS NOT NULL AND reason <> 'terminated')"
    on(
        LETTERS,
        Rule("S7", wrong, "id", "concat('a dead letter because of ', reason)", "index"),
    )
    if traced:
        on(
            LETTERS,
            Rule(
                "S7",
                f"NOT ({wrong}) AND reason = 'max_deliveries' AND"
                " coalesce(alive_last.failures + 1 <> source_max, true)",
                "id", "'dead-lettered before its limit'", "index",
            ),
        )  # fmt: skip
    if rare.redriven:
        return
    on(
        "by_message",
        Rule(
            "S7", "alive_after IS NOT NULL", "id", "'live and dead'", "buried.index, alive_after"
        ),
        Rule(
            "S7", "buried IS NOT NULL AND acked IS NOT NULL", "id",
            "'acked, and a dead letter'", "acked, buried.index",
        ),
    )  # fmt: skip


def _ordering(on: _On, rare: Rare, made: Tables) -> None:
    """S11: what order a queue promises, where nothing was redriven."""
    if rare.redriven:
        return
    if any(queue.ordering == "key" for queue in rare.queues().values()):
        on(
            KEYED,
            Rule(
                "S11", "alive_first < elder.finished", "id",
                "'its elder was unfinished'", "elder.confirm_index, alive_first",
            ),
        )  # fmt: skip
    if not made.lined_up:
        return
    on(
        LINED_UP,
        Rule(
            "S11", "first.token < elder.token", "id",
            "'handed out before its elder'", "elder.index, first.index",
        ),
    )  # fmt: skip


if TYPE_CHECKING:
    from collections.abc import Callable

    _On = Callable[..., None]


def find(spark: SparkSession, rare: Rare, made: Tables) -> DataFrame:
    """All findings of all rules on tables: rule, subject, text, events."""
    facts(spark, "explained", rare.explained().items(), "queue string, count bigint")
    parts = []
    for table, some in rules(rare, made).items():
        alternatives = ", ".join(
            f"CASE WHEN {rule.broken} THEN named_struct('rule', '{rule.name}',"
            f" 'subject', CAST({rule.subject} AS string), 'text', {rule.text},"
            f" 'events', array({rule.shown})) END"
            for rule in some
        )
        any_of = " OR ".join(f"({rule.broken})" for rule in some)
        parts.append(
            f"SELECT found.* FROM (SELECT explode(array({alternatives})) AS found"
            f" FROM {table} AS t WHERE {any_of}) AS t WHERE found IS NOT NULL"
        )
    return spark.sql(" UNION ALL ".join(parts))


UNDER_LASTING = f"""
SELECT fault, begun, count(*) AS n, sort_array(collect_list(wait)) AS waits FROM (
  SELECT l.fault, l.begun,
    coalesce(p.answer_time - p.invoke_time, double('infinity')) AS wait
  FROM publishes p JOIN lasting l
    ON p.invoke_time > l.since + {LASTING_SETTLE_S} AND p.invoke_time < l.until)
GROUP BY fault, begun ORDER BY begun
"""


def slow_publishes(spark: SparkSession, rare: Rare) -> Iterator[Finding]:
    """V2: while a minority is sick for good, publishing goes on."""
    lasting = [
        (begun["value"]["fault"], begun["index"], begun["time"], end)
        for begun, end in rare.lasting()
    ]
    if not lasting:
        return
    facts(spark, "lasting", lasting, "fault string, begun bigint, since double, until double")
    for row in spark.sql(UNDER_LASTING).collect():
        if (p99 := row["waits"][int(0.99 * (row["n"] - 1))]) > LASTING_P99_S:
            text = f"p99 of {row['n']} publishes is {p99:.1f} s during {row['fault']}"
            yield Finding("V2", row["fault"], text, (row["begun"],))
