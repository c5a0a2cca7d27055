"""Each bug of `raft_switches.py` turns the test of its hazard red, which without it is green."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.mutants.hunting import scenario
from tests.node.journal import (
    test_journal_damage,
    test_journal_power,
    test_journal_preallocation,
    test_journal_segments,
    test_log_reader,
    test_off_the_loop,
)
from tests.node.raft import test_pin, test_transport
from tests.support.raft_switches import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


def b07_flipped_bit() -> None:
    """No byte of a journal can be changed unnoticed."""
    test_journal_damage.test_b07_a_flipped_bit_is_never_accepted(test_journal_damage.Written())


def b13_failed_accept() -> None:
    """A failed accept costs a pause."""
    with pytest.MonkeyPatch.context() as patched:
        # A wait without success here would never have any.
        patched.setattr(test_transport.until, "__defaults__", (3.0,))
        asyncio.run(
            test_transport.test_b13_the_listener_survives_running_out_of_descriptors(patched)
        )


def b14_past_4_gib() -> None:
    """A log goes past 2^32."""
    test_journal_segments.test_b14_positions_have_64_bits(1 << 32)


def b08_vote_and_power_loss() -> None:
    """A vote that was given stays given."""
    test_journal_power.test_b08_a_vote_survives_every_power_loss_after_the_call()


def b15_full_disk() -> None:
    """Bytes that could not be written are not acknowledged."""
    test_journal_power.test_b15_a_full_disk_stops_the_journal_and_space_brings_it_back()


def b19_unpickling() -> None:
    """Nothing that the library does can unpickle."""
    test_pin.test_b19_pickle_is_poisoned_where_the_library_looks_for_it()


SCENARIOS: list[tuple[Callable[[], object], str]] = [
    (b07_flipped_bit, "IgnoresChecksums"),
    (b08_vote_and_power_loss, "VotesUnsynced"),
    (b13_failed_accept, "ClosesListener"),
    (b14_past_4_gib, "CountsTo32Bits"),
    (b15_full_disk, "IgnoresWriteErrors"),
    (b19_unpickling, "Unpickles"),
    (test_journal_preallocation.stale_records_behind_a_cut_tail, "KeepsTornTails"),
    (test_journal_preallocation.b07_lost_sector_of_a_synced_group, "CutsWhateverFollows"),
    (test_journal_preallocation.the_log_goes_on_where_its_records_end, "KeepsRoom"),
    (test_off_the_loop.sweep_of_a_new_segment, "BeginsSegmentFirst"),
    (test_off_the_loop.sweep_of_a_new_segment, "BeginsSegmentUnsynced"),
    (test_off_the_loop.snapshots_wait_for_their_disk, "GoesOnBeforeItsDisk"),
    (test_off_the_loop.keeps_syncs_off_the_loop, "CleansUpOnTheLoop"),
    (test_log_reader.keeps_reads_off_the_loop, "ReadsOnTheLoop"),
    (test_log_reader.nothing_old_is_sent, "SendsWhatItReadBefore"),
]
"""Tests of hazards as scenarios, each with the bug that it has to notice."""
IDS = [f"{work.__name__}-{name}" for work, name in SCENARIOS]


@pytest.mark.parametrize(("work", "name"), SCENARIOS, ids=IDS)
def test_the_scenario_holds(work: Callable[[], object], name: str) -> None:
    work()


@pytest.mark.parametrize(("work", "name"), SCENARIOS, ids=IDS)
def test_the_scenario_shows_the_bug(work: Callable[[], object], name: str) -> None:
    _, switch = SWITCHES[name]
    with switch():
        assert scenario(work, name)() is not None


def test_every_bug_has_its_scenario() -> None:
    assert sorted(name for _, name in SCENARIOS) == sorted(SWITCHES)
