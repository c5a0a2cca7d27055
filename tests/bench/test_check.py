"""The checker sees what went wrong, and only that. Histories made by hand."""

from __future__ import annotations

import pytest

from bench.demo.check import Verdict, check
from bench.demo.fate import Fate, expected, fate_of
from bench.demo.records import Delivery
from tests.bench.histories import COUNT, delivery, good_chunks, good_dead, good_deliveries

pytestmark = pytest.mark.slow


def verdict_on(
    deliveries: list[Delivery] | None = None,
    dead: list[Delivery] | None = None,
    *,
    published: int = COUNT,
    chunks_left_out: int = 0,
) -> Verdict:
    """The good history, with these parts in place of its own."""
    chunks = good_chunks()
    return check(
        COUNT,
        published,
        chunks[: len(chunks) - chunks_left_out],
        good_deliveries() if deliveries is None else deliveries,
        good_dead() if dead is None else dead,
    )


@pytest.mark.parametrize(
    ("row", "fate"),
    [
        (1, Fate.ACK),
        (99, Fate.ACK),
        (100, Fate.NACK_ONCE),
        (9_900, Fate.NACK_ONCE),
        (10_000, Fate.TERMINATE),
        (330_000, Fate.TERMINATE),
    ],
)
def test_a_rows_number_decides_its_fate(row: int, fate: Fate) -> None:
    """A row that is a hundredth and a ten-thousandth is terminated."""
    assert fate_of(row) is fate


def test_the_expected_counts_are_those_of_the_fates() -> None:
    """Arithmetic against counting, for all the flights."""
    rows = range(1, 336_777)
    plan = expected(len(rows))
    assert (plan.acked, plan.nacked, plan.dead_lettered) == (336_743, 3_334, 33)
    assert plan.nacked == sum(fate_of(row) is Fate.NACK_ONCE for row in rows)
    assert plan.dead_lettered == sum(fate_of(row) is Fate.TERMINATE for row in rows)


def test_a_good_run_is_found_good() -> None:
    """Every count, by hand."""
    verdict = verdict_on()
    assert verdict.ok
    assert {line.name: line.actual for line in verdict.lines} == {
        "published": COUNT,
        "confirmed": COUNT,
        "delivered": COUNT + 199,
        "acked": COUNT - 2,
        "nacked": 199,
        "redelivered": 199,
        "dead-lettered": 2,
        "lost": 0,
        "duplicates": 0,
        "stored twice": 0,
    }


def test_a_row_that_no_consumer_finished_is_lost() -> None:
    """Confirmed, and then never seen."""
    verdict = verdict_on([d for d in good_deliveries() if d.row != 4711])
    assert verdict["lost"] == 1
    assert not verdict.ok
    assert verdict.problems == ("lost: row 4711",)


def test_a_row_that_was_nacked_and_never_came_back_is_lost() -> None:
    """A delivery alone finishes nothing."""
    kept = [d for d in good_deliveries() if not (d.row == 300 and d.outcome == "acked")]
    assert verdict_on(kept)["lost"] == 1


def test_a_row_whose_settlement_was_refused_is_not_finished() -> None:
    """lock_lost means that another consumer has to do the work."""
    changed = [d._replace(outcome="lock_lost") if d.row == 77 else d for d in good_deliveries()]
    assert verdict_on(changed).problems == ("lost: row 77",)


def test_a_terminated_row_that_is_not_in_the_dead_letter_queue_is_lost() -> None:
    """The consumer's word that it terminated it is not enough."""
    verdict = verdict_on(dead=good_dead()[:1])
    assert verdict["lost"] == 1
    assert verdict["dead-lettered"] == 1
    assert not verdict.ok


def test_a_finished_row_that_comes_again_is_a_duplicate_and_no_loss() -> None:
    """At least once allows it, so it is counted and does not fail the run."""
    verdict = verdict_on([*good_deliveries(), delivery(5, "acked", attempt=2)])
    assert verdict["duplicates"] == 1
    assert verdict["redelivered"] == 200
    assert verdict.ok


def test_a_row_under_two_message_ids_was_stored_twice() -> None:
    """A publisher's retry that was not recognised: duplicates of this kind must not be."""
    verdict = verdict_on([*good_deliveries(), delivery(5, "acked", message_id="1/2/999999")])
    assert verdict["stored twice"] == 1
    assert not verdict.ok


def test_a_row_that_was_dead_lettered_though_nothing_was_wrong_with_it_is_found() -> None:
    """Not lost, but a consumer gave up on it against the plan."""
    kept = [d for d in good_deliveries() if d.row != 4711]
    verdict = verdict_on(kept, [*good_dead(), delivery(4711, "max_deliveries")])
    assert verdict["lost"] == 0
    assert not verdict.ok
    assert "ended otherwise than planned: row 4711" in verdict.problems


def test_a_row_that_was_never_nacked_is_found_by_the_count() -> None:
    """The plan said it fails once."""
    verdict = verdict_on(
        [d for d in good_deliveries() if not (d.row == 500 and d.outcome == "nacked")]
    )
    assert verdict["nacked"] == 198
    assert not verdict.ok


def test_a_dead_letter_that_came_twice_is_found() -> None:
    """A move is one command: it cannot happen twice."""
    assert not verdict_on(dead=[*good_dead(), *good_dead()[:1]]).ok


def test_a_chunk_that_was_not_confirmed_is_found() -> None:
    """Even if its rows arrived."""
    verdict = verdict_on(chunks_left_out=1)
    assert verdict["confirmed"] == COUNT - 100
    assert not verdict.ok


def test_a_row_that_was_never_sent_is_found() -> None:
    """No publisher had it."""
    verdict = verdict_on([*good_deliveries(), delivery(COUNT + 1, "acked")])
    assert f"not among the rows that were sent: row {COUNT + 1}" in verdict.problems


def test_many_lost_rows_are_named_by_the_first_ten() -> None:
    """A report is read by people."""
    (problem,) = verdict_on([d for d in good_deliveries() if not 1 <= d.row <= 40]).problems
    assert problem == "lost: rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 30 more"
