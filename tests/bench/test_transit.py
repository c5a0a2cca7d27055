"""The transit time of a delivery: a bound that is never too small."""

from __future__ import annotations

import random

from bench.load import transit
from bench.load.transit import Transit


def test_before_any_answer_the_bound_is_the_time_since_the_connect() -> None:
    assert Transit(10.0).at_most(12.5) == 2.5


def test_an_answer_that_came_before_the_delivery_bounds_it_by_its_question() -> None:
    known = Transit(0.0)
    known.answered(5.0, 5.25)
    assert known.at_most(5.25) == 0.25
    assert known.at_most(7.0) == 2.0
    assert known.at_most(5.125) == 5.125, "an answer that came later says nothing about it"


def test_of_answers_out_of_order_the_latest_question_counts() -> None:
    known = Transit(0.0)
    known.answered(4.0, 4.5)
    known.answered(1.0, 5.0)
    assert known.at_most(6.0) == 2.0


def test_a_delivery_before_the_remembered_answers_has_no_bound() -> None:
    known = Transit(0.0)
    for n in range(2 * transit.ANSWERS + 1):
        known.answered(n, n + 0.5)
    assert known.at_most(100.0) is None
    assert known.at_most(2 * transit.ANSWERS + 1.0) == 1.0


def test_on_a_connection_in_order_the_bound_is_never_below_the_truth() -> None:
    """Questions, answers and deliveries of a made-up connection that is slow by chance."""
    chance = random.Random(7)
    known, now, came = Transit(0.0), 0.0, 0.0
    for _ in range(5_000):
        asked = now = now + chance.random() * 0.1
        sent = asked + chance.random() * 0.05
        came = max(came, sent + chance.random() ** 4)
        if chance.random() < 0.5:
            known.answered(asked, came)
        else:
            bound = known.at_most(came)
            assert bound is not None
            assert bound >= came - sent
        now = max(now, came)
