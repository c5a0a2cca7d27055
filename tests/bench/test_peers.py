"""The comparison with other systems: figures, ratios, and what is left out where it is missing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.loopback import ClusterFailed
from bench.peers import __main__ as command
from bench.peers import debian, nats, picture, rabbitmq, worker
from bench.peers.drivers import RECONNECT_S
from bench.peers.figures import FIGURES, PAUSE, Measured, figures_of, rows_of
from bench.peers.meeting import Meeting, Times
from bench.peers.nats import Nats
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.rounds import LOADS, Rounds
from bench.peers.servers import Running, System
from bench.peers.worker import CONSUMER, PACER, PUBLISHER, SURVIVOR, Figures, Job
from bench.processes import Household, environment
from fifo.histogram import Histogram
from tests.test_pictures import PICTURE_BYTES_MAX


def counted(messages: int, *milliseconds: int) -> dict[str, object]:
    histogram = Histogram()
    for one in milliseconds:
        histogram.record(one * 1_000_000)
    return {"messages": messages, "latency": histogram.to_pairs()}


def test_the_figures_of_a_load_add_up_its_workers() -> None:
    """Two publishers and one consumer, over two seconds."""
    figures = figures_of(
        [
            (PUBLISHER, counted(600, 5, 5)),
            (PUBLISHER, counted(400, 7, 9)),
            (CONSUMER, counted(900, 20)),
        ],
        2.0,
    )
    assert figures["published per second"] == 500
    assert figures["acked per second"] == 450
    assert figures["confirm p50 ms"] == pytest.approx(5, rel=0.01)
    assert figures["confirm p99 ms"] == pytest.approx(9, rel=0.01)
    assert figures["end to end p50 ms"] == pytest.approx(20, rel=0.01)


def test_ratios_are_within_a_round_and_say_how_many_times_better_this_project_is() -> None:
    """More of a rate is better, less of a time is."""
    load = LOADS[1].name
    measured: Measured = {
        (load, FIGURES[0], "rabbitmq"): [10.0, 20.0, 10.0],
        (load, FIGURES[0], "fifo"): [40.0, 60.0, 100.0],
        (load, FIGURES[2], "fifo"): [2.0, 2.0, 4.0],
        (load, FIGURES[2], "rabbitmq"): [3.0, 2.0, 2.0],
    }
    rate, ours, _, wait = rows_of(measured)
    assert rate.load == load
    assert (rate.system, ours.system) == ("rabbitmq", "fifo")
    assert rate.ratio == (4, 3, 10)
    assert ours.ratio is None
    assert wait.ratio == (1, 0.5, 1.5)


def test_a_load_without_consumers_has_no_figures_of_them() -> None:
    assert set(figures_of([(PUBLISHER, counted(1, 1))], 1.0)) == {
        "published per second",
        "confirm p50 ms",
        "confirm p99 ms",
    }


def test_of_a_killed_leader_the_pause_is_the_figure() -> None:
    result = {**counted(700, 1), "pause_s": 0.8}
    assert figures_of([(SURVIVOR, result)], 46.0) == {PAUSE: 0.8}


def test_a_paced_load_has_times_and_no_rates() -> None:
    figures = figures_of([(PACER, counted(100, 2)), (CONSUMER, counted(100, 5))], 1.0)
    assert set(figures) == {
        *("confirm p50 ms", "confirm p99 ms"),
        *("end to end p50 ms", "end to end p99 ms"),
    }


REPORT = {
    "figures": [
        {"load": "a", "figure": "rate", "system": "fifo", "values": [8000, 1, 2], "ratio": None},
        {"load": "a", "figure": "rate", "system": "nats", "values": [1, 1, 1], "ratio": [5, 4, 6]},
        {"load": "a", "figure": "wait", "system": "fifo", "values": [2, 1, 2], "ratio": None},
        {"load": "a", "figure": "wait", "system": "nats", "values": [1, 1, 1], "ratio": [2, 1, 3]},
    ],
    "systems": {"fifo": {"version": "0.2.0"}, "nats": {"version": "2.12"}},
}
RABBIT = {
    "figures": [
        {"load": "a", "figure": "wait", "system": "fifo", "values": [2, 1, 2], "ratio": None},
        {
            "load": "a",
            "figure": "wait",
            "system": "rabbitmq",
            "values": [1, 1, 1],
            "ratio": [0.5, 0.25, 1.5],
        },
    ],
    "systems": {"rabbitmq": {"version": "4.0"}},
}


def test_the_worst_line_comes_first_and_runs_of_some_systems_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, report in (("one", REPORT), ("two", RABBIT)):
        (tmp_path / name).write_text(json.dumps(report))
    assert picture.main([str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| load: figure | here | nats (2.12) | rabbitmq (4.0) |",
        "| -- | -- | -- | -- |",
        "| a: wait | 2.00 | 2.00 (1.00 to 3.0) | 0.50 (0.25 to 1.50) |",
        "| a: rate | 8,000 | 5.0 (4.0 to 6.0) |  |",
    ]


def test_programs_of_another_release_enter_its_folder_and_an_old_folder_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "the root"
    debian.write_programs(tmp_path, root)
    assert RabbitMQ(tmp_path).missing() is None
    script = (tmp_path / "rabbitmqctl").read_text()
    assert f"sh '{root}' /usr/lib/rabbitmq/bin/rabbitmqctl" in script
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    assert debian.main([str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "rabbitmqctl").exists()


@pytest.mark.slow
def test_the_picture_has_each_line_and_is_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an extra that a plain setup has not")
    run = tmp_path / "run.json"
    run.write_text(json.dumps(REPORT))
    for name in ("a.svg", "b.svg"):
        picture.main([str(run), "--out", str(tmp_path / name)])
    text = (tmp_path / "a.svg").read_text()
    assert "a: rate" in text
    assert "prefers-color-scheme" in text
    assert text == (tmp_path / "b.svg").read_text()
    assert len(text) < PICTURE_BYTES_MAX


class Losing:
    """A driver whose third publish meets a killed leader; that and the next `fails` - 1 fail, then
    all is well."""

    errors = (ConnectionError,)

    def __init__(self, meeting: Meeting, fails: int) -> None:
        self._meeting = meeting
        self._fails = range(3, 3 + fails)
        self.published = self.recovered = 0

    async def open(self, url: str, queue: str) -> None: ...

    async def close(self) -> None: ...

    async def publish(self, body: bytes, count: int) -> None:
        self.published += 1
        if self.published == 3:
            self._meeting.killed()
        if self.published in self._fails:
            raise ConnectionError

    async def recover(self) -> None:
        self.recovered += 1
        raise ConnectionError

    async def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        yield ()


def job(folder: Path) -> Job:
    return Job("w", "fifo", "", "q", SURVIVOR, 64, 1, str(folder))


async def test_a_pacer_publishes_what_is_due_and_waits_for_none(tmp_path: Path) -> None:
    """Confirms that never come hold up nothing; the load ends all the same."""
    fifth = asyncio.Event()

    class Silent(Losing):
        async def publish(self, body: bytes, count: int) -> None:
            self.published += count
            if self.published == 5:
                fifth.set()
            await asyncio.get_running_loop().create_future()

    begun = time.monotonic_ns()
    times = Times(begun, begun + 60_000_000_000)
    paced = replace(job(tmp_path), role=PACER, rate=1_000)
    driver = Silent(Meeting(tmp_path), fails=0)
    pacing = asyncio.create_task(worker.pace(driver, paced, times, Figures()))
    await asyncio.wait_for(fifth.wait(), 30)
    pacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pacing


async def test_a_survivor_goes_on_over_errors_and_reports_its_longest_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SETTLED_S", 0.0)
    meeting, figures = Meeting(tmp_path), Figures()
    driver = Losing(meeting, fails=2)
    await worker.survive(driver, job(tmp_path), figures, meeting)
    assert driver.recovered == 2, "a failed recovery is no end either"
    assert driver.published == 5
    assert 2 * RECONNECT_S <= figures.pause_s < 60


async def test_a_survivor_waits_for_a_kill_that_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes on a busy machine: its patience begins with the kill."""
    monkeypatch.setattr(worker, "SETTLED_S", 0.0)
    monkeypatch.setattr(worker, "PAUSE_LIMIT_S", 0.0)
    meeting = Meeting(tmp_path)
    driver = Losing(meeting, fails=0)
    await worker.survive(driver, job(tmp_path), Figures(), meeting)
    assert driver.published == 3


async def test_a_survivor_that_is_never_confirmed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PAUSE_LIMIT_S", 0.0)
    meeting = Meeting(tmp_path)
    with pytest.raises(worker.NoConfirm, match="0 s after the leader was killed"):
        await worker.survive(Losing(meeting, fails=9), job(tmp_path), Figures(), meeting)


async def test_workers_begin_when_all_are_there(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "load")
    meeting.call()
    for name in ("a", "b"):
        meeting.arrive(name)
    assert meeting.arrived() == 2
    assert meeting.killed_ns() is None
    begun = meeting.begin(1.0, 2.0)
    assert begun.end_ns - begun.begin_ns == 2_000_000_000
    assert await meeting.times() == begun


class Broken:
    """A system that does not start."""

    name = "broken"

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "0"

    async def start(self, household: Household, folder: Path) -> Running:
        raise ClusterFailed("no port left")


async def test_a_system_that_fails_is_left_out_and_the_rest_go_on(tmp_path: Path) -> None:
    said: list[str] = []
    household = Household(tmp_path / "logs")
    rounds = Rounds(
        tmp_path, [Broken()], seconds=1, warm_up_s=1, size=64, say=said.append, household=household
    )
    await rounds.run(3)
    assert rounds.failed == {"broken": "no port left"}
    assert said == [
        *("round 1 of 3: broken", "broken failed, and is left out from now on: no port left")
    ]


def test_the_durability_of_nats_is_as_its_server_reports() -> None:
    assert "sync_interval: always" in nats.durability({"sync_always": True, "sync_interval": 1})
    assert "NOTHING synced before a confirm, only every 120 s" in nats.durability(
        {"sync_interval": 120_000_000_000}
    )
    assert "2 minutes (fixed in this version)" in nats.durability({"max_memory": 1})


def test_the_durability_of_rabbitmq_is_as_its_node_reports() -> None:
    policy = "#{wal_sync_method => datasync,wal_write_strategy => default,name => quorum_queues}"
    assert rabbitmq.durability(policy) == (
        "quorum queue, fsync on a majority before every confirm"
        " (wal_sync_method datasync, wal_write_strategy default)"
    )
    assert "NOT known" in rabbitmq.durability(policy.replace("datasync", "none"))
    assert "NOT known" in rabbitmq.durability("")


def test_each_peer_names_the_leader_of_a_queue() -> None:
    listed = '[{"name": "other", "leader": "n1"}, {"name": "q", "leader": "n2"}]'
    assert rabbitmq.leader_of(listed, "q") == "n2"
    assert rabbitmq.leader_of("Error: no node", "q") == ""
    streams = [{"name": "other"}, {"name": "q", "cluster": {"leader": "n3"}}]
    assert nats.leader_of({"account_details": [{"stream_detail": streams}]}, "q") == "n3"
    assert nats.leader_of({}, "q") == ""


def test_a_nats_server_that_is_too_old_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/sbin/nats-server")
    monkeypatch.setattr(nats, "answer_of", lambda *_: "nats-server: v2.9.10")
    why = Nats(always=True).missing()
    assert why is not None
    assert "needs nats-server 2.10 or newer, the first on the PATH is 2.9.10" in why
    assert "pip install" in why
    assert Nats(always=False).missing() is None


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--only", "fifo,kafka"], "--only: kafka is none of fifo, rabbitmq, nats"),
        (["--dir", "/nowhere/at/all"], "there is no such folder"),
        (["--rounds", "0"], "must be above zero"),
    ],
)
def test_options_that_make_no_sense_are_a_usage_error(
    arguments: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse(arguments)
    assert ended.value.code == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize("system", [RabbitMQ(), Nats(always=False), Nats(always=True)])
def test_a_missing_peer_is_named_with_its_remedy(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("bench.peers.rabbitmq.PROGRAMS", ())
    good, left_out = command.usable([system])
    assert good == []
    assert "apt-get install" in left_out[0]


def unusable(system: System) -> str | None:
    """Why a system cannot run here."""
    return next(iter(command.usable([system])[1]), None)


PEERS = [
    pytest.param("fifo", "fsync on a majority", id="fifo"),
    *(
        pytest.param(
            name, words, id=name,
            marks=pytest.mark.skipif(unusable(system) is not None, reason=str(unusable(system))),
        )
        for name, words, system in (
            ("nats", "NOTHING synced before a confirm", Nats(always=False)),
            ("rabbitmq", "fsync on a majority", RabbitMQ()),
        )
    ),
]  # fmt: skip


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "words"), PEERS)
def test_a_round_runs_and_leaves_nothing(name: str, words: str, tmp_path: Path) -> None:
    """Every load, a killed leader at last. Of the others where they are installed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.peers", "--only", name, "--rounds", "1", "--json"),
            *("--seconds", "0.5", "--warm-up", "0.5", "--dir", str(tmp_path)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for system, found in report["systems"].items():
        assert words in found["durability"] or "always" in system
        mine = [row for row in report["figures"] if row["system"] == system]
        assert {row["load"] for row in mine} == {load.name for load in LOADS}
        # A window of 1000 may take a busy machine longer than the measured half second.
        slow = [row for row in mine if row["load"] in {load.name for load in LOADS[4:]}]
        assert len(slow) == len(("published per second", "confirm p50 ms", "confirm p99 ms", PAUSE))
        assert all(row["values"][0] > 0 for row in slow)
    assert report["disk"] != ""
    assert list(tmp_path.iterdir()) == []
