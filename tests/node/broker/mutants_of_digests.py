"""Plausible bugs of the digests of whole states: a test of their parts must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable

from node.broker.digests import Digests
from node.broker.machine_host import MachineHost
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_digests as digests


def _test(work: Callable[[], None]) -> Hunt:
    """A test without a fixture."""
    return scenario(work, named(work))


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "the log names a digest at each entry": (
        edited(MachineHost, "_follow_time", "(now_ms // self.digest_ms + 1) * self.digest_ms", "0"),
        _test(digests.test_the_first_entry_of_a_period_names_a_digest),
    ),
    "a period of digests begins with the entry that named the last": (
        edited(
            MachineHost,
            "_follow_time",
            "(now_ms // self.digest_ms + 1) * self.digest_ms",
            "now_ms + self.digest_ms",
        ),
        _test(digests.test_the_first_entry_of_a_period_names_a_digest),
    ),
    "digests are made before all members know of them": (
        edited(MachineHost, "_name_digest", "self.machine.version >= STATES_COMPARED", "True"),
        _test(digests.test_no_digest_is_made_before_all_members_know_of_it),
    ),
    "a digest is taken for that of the entry that names it": (
        edited(Digests, "named", "index - 1", "index"),
        _test(digests.test_the_digest_is_of_the_state_below_the_entry_that_names_it),
    ),
    "all members hash their states at once": (
        edited(Digests, "named", "self._now() + self._wait_s", "self._now()"),
        _test(digests.test_the_members_make_it_one_after_the_other),
    ),
    "the digest of a state that was replaced is compared": (
        edited(Digests, "replaced", "self._end()", "pass"),
        _test(digests.test_a_state_that_was_replaced_is_not_compared),
    ),
}

MUTANTS = tuple(
    Mutant("digests", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
