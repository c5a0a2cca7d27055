"""Bugs put back into the checkers themselves: the score has to notice.

Owns those of the plain checkers: the one on Spark is held to them, copy by copy.
"""

from __future__ import annotations

from functools import partial

from tests.jepsen.checkers import counting, settling, sorting
from tests.jepsen.score.page import wrong
from tests.jepsen.score.recording import goods
from tests.jepsen.score.scoring import Checker, copies, parts_of, plain, score
from tests.mutants.hunting import Hunt, Mutant, scenario
from tests.mutants.switch import Switch, edited


def judged(checker: Checker, *names: str) -> None:
    """The score of some mutations; raises AssertionError where one is judged wrongly."""
    made = [copy for copy in copies(parts_of(goods())) if copy.mutation.name in names]
    assert wrong({"it": score(made, checker)}) == []


_PLAIN = "tests/jepsen/score/test_score.py::test_the_plain_checkers_catch_every_mutation"
_PLAIN += "_and_raise_no_false_alarm"


def _by_plain(*names: str) -> Hunt:
    return scenario(partial(judged, plain, *names), _PLAIN)


def _mutant(breaks: str, put_back: Switch, *hunts: Hunt) -> Mutant:
    return Mutant("checkers", breaks, breaks, put_back, hunts)


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "failures before the first attempt are believed",
        edited(counting, "_one_stay", '["failures"] >= value["attempt"]', '["failures"] < 0'),
        _by_plain("failure before the first attempt"),
    ),
    _mutant(
        "any token may settle",
        edited(settling, "_unreceived", "received.get(key_of(settle.asked))", "settle.asked"),
        _by_plain("settled by a token never delivered"),
    ),
    _mutant(
        "a delivery counts though it came after its settlement",
        edited(settling, "_unreceived", "index_of(deliver) > index_of(settle.asked)", "False"),
        _by_plain("settled before its delivery"),
    ),
    _mutant(
        "a settlement may name any queue",
        edited(
            settling,
            "_unreceived",
            '["value"].get("queue") not in (',
            '["value"].get("no") not in (',
        ),
        _by_plain("settled in another queue"),
    ),
    _mutant(
        "a delivery that its client had late is the newer one where dead letters went back",
        edited(sorting.SortedHistory, "_place", "index_of(event) > begun", "begun < NEVER"),
        _by_plain("received late"),
    ),
)
