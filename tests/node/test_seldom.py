"""Lines about strangers are few: each has one a minute, and all together have a bound."""

from __future__ import annotations

from node.peers import limits
from node.peers.seldom import Seldom


def test_each_subject_has_one_line_in_a_period_and_all_have_a_bound() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    assert [seldom.may("a"), seldom.may("a"), seldom.may("b")] == [True, False, True]
    now = limits.REFUSAL_LOG_SECONDS - 1
    assert not seldom.may("a")
    assert sum(seldom.may(f"c{at}") for at in range(1_000)) == limits.REFUSAL_LINES_MAX - 2
    now = limits.REFUSAL_LOG_SECONDS
    assert [seldom.may("a"), seldom.may("b"), seldom.may("d")] == [True, True, False]
    now = 3 * limits.REFUSAL_LOG_SECONDS
    assert seldom.may("d")
    assert repr(seldom) == "<Seldom 1 subjects>"
