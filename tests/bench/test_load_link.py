"""Partitions and their driver: clock, progress, the word to end and files, without a shared folder.

The processes of another clock are real ones: `unshare --time` starts them a day ahead.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import AuthenticationError
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.load.hub import Hub
from bench.load.link import Address, Link, clock_name
from bench.load.partition import CONSUMER, Figures, Row, Run, recorder, telling
from bench.load.recorder import number
from bench.load.workload import Workload

WAIT_S = 20.0
HERE = "127.0.0.1"
RUN = Run("u", "q", Workload(producers=2, consumers=1), history=True)


def until(condition: Callable[[], object]) -> None:
    """Look until it holds."""
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not true within {WAIT_S} s"
        pause.wait(0.01)


def test_a_partition_hears_the_end_of_all_producers_and_the_word_to_stop(tmp_path: Path) -> None:
    """Also one that comes later."""
    with Hub(HERE, HERE, tmp_path, 2) as hub, Link(hub.address) as link:
        link.tell(ended=0)
        link.tell(ended=0)
        link.tell(ended=1)
        until(lambda: link.published)
        assert not link.stopped
        hub.stop()
        until(lambda: link.stopped)
        with Link(hub.address) as late:
            until(lambda: late.published and late.stopped)


def test_a_partition_ends_where_its_driver_is_gone(tmp_path: Path) -> None:
    with Hub(HERE, HERE, tmp_path, 1) as hub:
        link = Link(hub.address)
    with link:
        until(lambda: link.stopped)
        link.tell(row={})


def test_one_clock_needs_no_measuring_and_is_exact(tmp_path: Path) -> None:
    with Hub(HERE, HERE, tmp_path, 1) as hub, Link(hub.address) as link:
        assert (link.offset_ns, link.error_ns) == (0, 0)


def test_another_clock_is_measured_to_half_of_the_quickest_answer(tmp_path: Path) -> None:
    """The name alone says that it is another: what is measured is this one."""
    with (
        Hub(HERE, HERE, tmp_path, 1) as hub,
        Link(hub.address._replace(clock="elsewhere")) as link,
    ):
        assert link.error_ns > 0
        assert abs(link.offset_ns) <= link.error_ns


def test_a_late_partition_with_another_clock_hears_what_was_said_before_its_time(
    tmp_path: Path,
) -> None:
    """A consumer's next process connects when all producers have ended: that comes first."""
    with Hub(HERE, HERE, tmp_path, 0) as hub:
        hub.stop()
        with Link(hub.address._replace(clock="elsewhere")) as link:
            assert link.error_ns > 0
            until(lambda: link.published and link.stopped)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_host_whose_clock_is_a_day_ahead_agrees_with_the_driver(tmp_path: Path) -> None:
    """A real process in a time namespace of its own, which asks for the time over its link."""
    ahead = ("unshare", "--time", "--monotonic", "86400", "--fork")
    probe = subprocess.run([*ahead, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("time namespaces need root and a kernel that has them")
    with Hub(HERE, HERE, tmp_path, 1) as hub:
        address = repr((*hub.address,))
        program = (
            "import time\n"
            "from bench.load.link import Address, Link\n"
            f"with Link(Address(*{address})) as link:\n"
            "    print(time.monotonic_ns(), link.offset_ns, link.error_ns)\n"
        )
        before = time.monotonic_ns()
        done = subprocess.run(
            [*ahead, sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        after = time.monotonic_ns()
    assert done.returncode == 0, done.stderr
    there, offset, error = map(int, done.stdout.split())
    assert there > after + 86_000 * 10**9, "its clock is another one"
    assert before - error <= there + offset <= after + error


def test_a_stranger_is_not_served_and_stops_nothing(tmp_path: Path) -> None:
    """A silent one, and one with another secret."""
    with Hub(HERE, HERE, tmp_path, 1) as hub:
        address = hub.address
        with socket.create_connection((address.host, address.port)) as silent:
            with pytest.raises((AuthenticationError, OSError, EOFError)):
                Link(Address(address.host, address.port, b"another", clock_name()))
            with Link(address) as link:
                link.tell(ended=0)
                until(lambda: link.published)
            assert silent.fileno() >= 0


def test_a_file_with_a_path_for_a_name_is_not_kept(tmp_path: Path) -> None:
    wrong = tmp_path / "file"
    wrong.write_bytes(b"x")
    with Hub(HERE, HERE, tmp_path / "events", 1) as hub, Link(hub.address) as link:
        link._connection.send_bytes(json.dumps({"file": "../up", "bytes": 1}).encode())
        until(lambda: link.stopped)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "file"]


def test_parts_of_a_history_reach_the_driver_and_become_one(tmp_path: Path) -> None:
    """Two hosts write, one of them a second behind by its own clock; every event has a number."""
    events, target = tmp_path / "events", tmp_path / "history"
    with Hub(HERE, HERE, events, 1) as hub, Link(hub.address) as link:
        for name, run in (("one", RUN), ("two", replace(RUN, offset_ns=10**9))):
            with recorder(run, link, name) as record:
                for at in range(3):
                    record.add("ok", "publish", name, queue="q", body=f"{name} {at}")
    assert number(events, target) == 6
    found = parquet.read_table(target).sort_by("index").to_pylist()
    assert [event["index"] for event in found] == list(range(6))
    assert [event["value"]["body"] for event in found] == [
        *("one 0", "one 1", "one 2", "two 0", "two 1", "two 2")
    ]
    assert list(found[0]) == ["type", "f", "value", "process", "time", "index"]


def test_events_of_equal_times_keep_the_order_of_their_writer(tmp_path: Path) -> None:
    """In batches, of which each is numbered on its own."""
    from bench.load.recorder import Recorder

    parts = tmp_path / "parts"
    for writer in ("a", "b"):
        with Recorder(parts, writer, lambda: 7.0) as record:
            for at in range(50):
                record.add("ok", "publish", writer, body=str(at))
    assert number(parts, tmp_path / "history") == 100
    found = pa.Table.to_pylist(parquet.read_table(tmp_path / "history").sort_by("index"))
    assert [event["process"] for event in found] == ["a"] * 50 + ["b"] * 50
    for writer in ("a", "b"):
        bodies = [one["value"]["body"] for one in found if one["process"] == writer]
        assert bodies == [str(at) for at in range(50)]


async def test_what_a_partition_has_done_is_known_before_it_ends(tmp_path: Path) -> None:
    """So that a job which fails has a report."""
    figures = Figures(RUN, Row(CONSUMER, 2, "h"))
    with Hub(HERE, HERE, tmp_path, 1) as hub, Link(hub.address) as link:
        async with telling(link, figures):
            figures.count(0, 5_000_000, 9)
            figures.delivered = 9
        until(lambda: any(row.messages for row, _ in hub.rows()))
        ((row, delivered),) = hub.rows()
    assert (row.role, row.messages, delivered) == (CONSUMER, 9, 9)
    assert sum(count for _, count in row.latency) == 9
