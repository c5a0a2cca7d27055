"""Which deliveries leave bodies out: those of which every fetch under way wants none."""

from __future__ import annotations

from node.broker.bodiless import Bodiless

ONE, OTHER = (7, 1), (7, 2)


def test_bodies_are_left_out_only_where_all_fetches_under_way_leave_them_out() -> None:
    bodiless = Bodiless()
    assert not bodiless.covers(ONE)
    bodiless.begin(ONE, bodies=False)
    assert (bodiless.covers(ONE), bodiless.covers(OTHER)) == (True, False)
    bodiless.begin(ONE, bodies=True)
    assert not bodiless.covers(ONE), "one that wants bodies would miss them"
    bodiless.begin(ONE, bodies=False)
    bodiless.end(ONE, bodies=True)
    assert bodiless.covers(ONE)
    bodiless.end(ONE, bodies=False)
    bodiless.end(ONE, bodies=False)
    assert not bodiless.covers(ONE)
