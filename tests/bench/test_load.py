"""The load job's parts: workloads, bodies, options, figures, sweeps."""

from __future__ import annotations

import io
import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import fifo
from bench.load import bodies, page, producer, sweep
from bench.load.command import parse
from bench.load.hub import Hub
from bench.load.link import Link
from bench.load.medians import as_json, cell, medians, print_medians
from bench.load.partition import CONSUMER, PRODUCER, Figures, Row, Run
from bench.load.progress import progress
from bench.load.recorder import NoRecorder
from bench.load.report import report_of
from bench.load.workload import (
    Messages,
    Phase,
    Workload,
    WorkloadWrong,
    load,
    shipped,
)
from bench.load.workload import parse as workload_of
from fifo.histogram import Histogram
from tests.support.browser import BROWSER_SECONDS, WIDTHS, faults_of, needs_browser

LOAD = Workload(producers=3, consumers=1, messages=1000)
SECOND_NS = 1_000_000_000


def row(role: str, partition: int, messages: int, begin_s: int, end_s: int, ms: int) -> Row:
    """A partition whose messages all took the same time."""
    histogram = Histogram()
    histogram.record(ms * 1_000_000, messages)
    return Row(
        role=role,
        partition=partition,
        host="h",
        messages=messages,
        measured=messages,
        begin_ns=begin_s * SECOND_NS,
        end_ns=end_s * SECOND_NS,
        latency=histogram.to_pairs(),
        outcomes={} if role == PRODUCER else {"ack ok": messages},
    )


def test_the_producers_shares_add_up() -> None:
    """Also where they do not divide."""
    assert [LOAD.share(producer) for producer in range(3)] == [333, 333, 334]


def test_rates_span_all_partitions_and_latencies_are_merged() -> None:
    """Two producers that overlap, one consumer that had nothing to do."""
    rows = [
        row(PRODUCER, 0, 600, 10, 12, 5),
        row(PRODUCER, 1, 400, 11, 14, 50),
        row(CONSUMER, 2, 0, 0, 0, 1),
        row(CONSUMER, 3, 1000, 11, 15, 8),
    ]
    report = report_of(LOAD, rows)
    assert report["published"] == 1000
    assert report["acked"] == 1000
    assert report["published_per_second"] == 250
    assert report["acked_per_second"] == 250
    assert report["confirm_ms"]["p50"] == pytest.approx(5, rel=0.01)
    assert report["confirm_ms"]["p99"] == pytest.approx(50, rel=0.01)
    assert [part["per_second"] for part in report["partitions"]] == [300, 133.3, 0, 250]


def test_a_job_without_messages_has_no_rates() -> None:
    """And no division by zero."""
    report = report_of(LOAD, [row(PRODUCER, 0, 0, 0, 0, 1)])
    assert report["published_per_second"] == 0
    assert report["end_to_end_ms"] == {"p50": None, "p95": None, "p99": None}


@pytest.mark.parametrize("name", shipped())
def test_every_workload_that_comes_along_can_be_carried_out(name: str) -> None:
    workload = load(name)
    assert workload.name == name
    assert workload.messages or any(phase.measured for phase in workload.phases)


def test_the_workloads_of_the_issue_come_along() -> None:
    assert shipped() == ["flights", "hot-keys", "long-tasks", "poison", "uniform"]


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        ({"mesages": {}}, r"\[mesages\]: there is no such table, did you mean messages\?"),
        ({"messages": {"byte": 1}}, r"messages.byte: .* did you mean bytes\?"),
        ({"run": {"producer": 1}}, r"run.producer: .* did you mean producers\?"),
        ({"messages": {"bytes": 10}}, r"messages.bytes: 64 at least"),
        ({"messages": {"bytes": "many"}}, r"messages.bytes: 'many' is no int"),
        ({"messages": {"sizes": "huge"}}, r"messages.sizes: 'huge' is none of fixed, uniform"),
        ({"failures": {"nack": 2.0}}, r"failures.nack: a share between 0 and 1"),
        ({"failures": {"terminate": 0.1}}, r"queue.dead_letter: must be true"),
        ({"queue": {"dead_letter": True}, "failures": {"poison": 0.1}}, r"queue.max_deliveries"),
        ({"consumers": {"think": "fixed"}}, r"consumers.think_ms: must be above zero"),
        ({"phases": [{"seconds": 0}]}, r"phases: seconds must be above zero"),
        ({"run": {"producers": 0, "consumers": 0}}, r"nothing to do"),
    ],
)
def test_a_wrong_workload_is_refused_by_field(tables: dict[str, object], wrong: str) -> None:
    with pytest.raises(WorkloadWrong, match=wrong):
        workload_of(tables, "x")


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[run\n")
    with pytest.raises(WorkloadWrong, match=r"mine\.toml: "):
        load(str(path))
    with pytest.raises(WorkloadWrong, match="neither a file nor one of flights"):
        load("nothing")


def test_a_body_says_its_name_and_whether_it_is_whole() -> None:
    body = bodies.body_of("p1-7", 12_345, b"content")
    assert bodies.read(body) == ("p1-7", 12_345, True)
    assert not bodies.read(body[:-1] + b"!").intact
    assert not bodies.read(b"short").intact


@pytest.mark.parametrize(
    ("messages", "least", "most"),
    [
        (Messages(bytes=500), 500, 500),
        (Messages(sizes="uniform", bytes=100, most=300), 100, 300),
        (Messages(sizes="lognormal", bytes=1000), 64, 1 << 20),
    ],
)
def test_sizes_are_drawn_as_asked_and_equal_seeds_give_equal_runs(
    messages: Messages, least: int, most: int
) -> None:
    workload = replace(LOAD, body=messages)
    some = [len(one.data) + 32 for one in itertools.islice(bodies.contents(workload, 1), 300)]
    again = [len(one.data) + 32 for one in itertools.islice(bodies.contents(workload, 1), 300)]
    assert some == again
    assert least <= min(some)
    assert max(some) <= most


def test_hot_keys_are_hot() -> None:
    workload = replace(LOAD, body=Messages(keys=100, skew=1.2))
    keys = [one.key for one in itertools.islice(bodies.contents(workload, 0), 2000)]
    assert keys.count("k0") > 5 * max(1, keys.count("k50"))


def test_phases_follow_each_other_and_only_measured_ones_count() -> None:
    phases = (Phase("warm-up", 5, measured=False), Phase("steady", 10))
    run = Run("u", "q", replace(LOAD, messages=0, phases=phases), begin=100.0)
    assert [(phase.name, begin, end) for phase, begin, end in run.phases()] == [
        ("warm-up", 100, 105),
        ("steady", 105, 115),
    ]
    assert [run.since(now) for now in (99, 101, 105, 114, 116)] == [None, None, 105, 105, 115]
    so_many = replace(run, workload=LOAD)
    assert [so_many.since(now) for now in (99, 101)] == [None, 100]


def test_a_burst_has_a_rate_from_its_beginning() -> None:
    """And what came before it counts as a message, not in the figures."""
    run = Run("u", "q", LOAD, begin=100.0)
    figures = Figures(run, Row(PRODUCER, 0, "h"))
    figures.count(98 * SECOND_NS, 99 * SECOND_NS, 7)
    figures.count(100 * SECOND_NS, 102 * SECOND_NS, 1000)
    report = report_of(LOAD, [figures.finished()])
    assert report["published"] == 1007
    assert report["published_per_second"] == 500
    assert report["confirm_ms"]["p50"] == pytest.approx(2000, rel=0.01)


async def test_producers_wait_for_the_common_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connected before it, they publish nothing until then: by the driver's clock, a day ahead."""
    published: list[float] = []

    class Client:
        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def publish_many(self, _queue: str, bodies: list[bytes], **_: object) -> list[object]:
            published.append(time.monotonic())
            return [SimpleNamespace(id="1.1.1") for _ in bodies]

    monkeypatch.setattr(fifo, "connect", lambda *_, **__: Client())
    day_ns = 86_400 * SECOND_NS
    begin = time.monotonic() + 0.2
    workload = replace(LOAD, producers=1, messages=500)
    run = Run("u", "q", workload, begin=begin + 86_400, offset_ns=day_ns, error_ns=7)
    figures = Figures(run, Row(PRODUCER, 0, "h"))
    with Hub("127.0.0.1", "127.0.0.1", tmp_path, 1) as hub, Link(hub.address) as link:
        await producer.produce(run, figures, NoRecorder(), link)
    assert figures.row.measured == 500
    assert figures.row.begin_ns == int(run.begin * 1e9)
    assert figures.row.clock_error_ns == 7
    assert min(published) >= begin


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["q"]),
        (["--runs", "2"], ["q-1", "q-2"]),
        (["--sweep", "size=512,256"], ["q-256", "q-512"]),
        (
            ["--sweep", "size=256,512", "--runs", "2"],
            ["q-256-1", "q-512-1", "q-256-2", "q-512-2"],
        ),
    ],
)
def test_each_run_has_a_queue_of_its_own(arguments: list[str], names: list[str]) -> None:
    options = parse(["--url", "fifo://127.0.0.1:7101", "--queue", "q", *arguments])
    assert [take.name for take in options.takes] == names


def test_progress_is_the_sum_of_the_partitions() -> None:
    rows = [
        (row(role, number, 10, 1, 2, number + 1), 5 * number)
        for number, role in enumerate((PRODUCER, PRODUCER, CONSUMER))
    ]
    seen = progress(rows)
    assert (seen.confirmed, seen.delivered) == (20, 15)
    assert "20 confirmed (p99 2.0 ms)" in seen.line()
    assert "lag 5" in seen.line()


@pytest.mark.slow
def test_the_page_of_one_run_has_its_figures_and_settings() -> None:
    """And says where the job was interrupted, or has failed."""
    report = report_of(LOAD, [row(PRODUCER, 0, 600, 1, 2, 5), row(CONSUMER, 1, 600, 1, 2, 9)])
    report["progress"] = [
        {"confirmed": 200 * at, "delivered": 100 * at, "confirm_p99_ms": 1, "delivery_p99_ms": 1}
        for at in range(4)
    ]
    whole = page.render({**report, "left": {"q": 7}})
    assert "600 published and 600 acked per second" in whole
    assert whole.count("<svg") == 2
    assert "<th>workload.queue.lock</th><td>30.0</td>" in whole
    assert "<th>q</th><td>7</td>" in whole
    assert "The job was interrupted: 600 published" in page.render(report)
    failed = page.render({**report, "failed": "no <leader>"})
    assert "The job failed, and this is what it did until then" in failed
    assert "no &lt;leader&gt;" in failed


@pytest.mark.slow
def test_a_sweep_runs_the_workload_at_each_value_and_draws_it() -> None:
    found = sweep.parse("size=4096,256")
    assert [(value, one.body.bytes) for value, one in sweep.variants(LOAD, found)] == [
        (256, 256),
        (4096, 4096),
    ]
    reports = {
        value: [
            report_of(one, [row(PRODUCER, 0, value, 1, 2, 5), row(CONSUMER, 1, value, 1, 2, 5)])
        ]
        for value, one in sweep.variants(LOAD, found)
    }
    drawn = sweep.page("size", reports)
    assert drawn.count("<svg") == len(sweep.CURVES)
    assert "medians of" not in drawn
    several = sweep.page("size", {value: runs * 3 for value, runs in reports.items()})
    assert "medians of 3 runs" in several
    with pytest.raises(WorkloadWrong, match="is none of size"):
        sweep.parse("colour=1")
    with pytest.raises(WorkloadWrong, match="whole numbers"):
        sweep.parse("size=a")


@pytest.mark.process
@needs_browser
@pytest.mark.timeout(3 * BROWSER_SECONDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_every_curve_of_a_sweep_in_its_place(width: int, tmp_path: Path) -> None:
    def report(value: int) -> dict[str, object]:
        rows = [row(PRODUCER, 0, value, 1, 2, 5), row(CONSUMER, 1, value, 1, 2, 5)]
        return report_of(LOAD, rows)

    drawn = sweep.page("size", {value: [report(value)] for value in (256, 4096, 65536)})
    assert faults_of(drawn, tmp_path, width, pictures=len(sweep.CURVES)) == "none"


def test_several_runs_are_a_median_with_lowest_and_highest() -> None:
    """Only figures that all runs have are shown; these runs have no consumer."""
    reports = [
        report_of(LOAD, [row(PRODUCER, 0, messages, 1, 2, ms)])
        for messages, ms in ((600, 5), (900, 50), (700, 9))
    ]
    found = medians(reports)
    assert found["published per second"] == (700, 600, 900)
    assert found["confirm p99, ms"] == pytest.approx((9, 5, 50), rel=0.01)
    assert found["redelivered"] == (0, 0, 0)
    assert "end to end p99, ms" not in found
    assert cell(found["published per second"], 3) == "700.0 (600.0 to 900.0)"
    assert cell(found["published per second"], 1) == "700.0"
    written = json.loads(as_json(reports))
    assert written["figures"]["published per second"] == {
        "median": 700, "lowest": 600, "highest": 900
    }  # fmt: skip
    assert len(written["runs"]) == 3
    text = io.StringIO()
    print_medians(reports, Console(file=text, width=200))
    assert re.search(
        r"published per second\s+│\s+700.00\s+│\s+600.00\s+│\s+900.00", text.getvalue()
    )
    assert "3 runs of options; acked: 0, 0, 0" in text.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--queue", "q", "--runs", "0"],
        ["--queue", "q", "--sweep", "size=7,256"],
        ["--queue", "q", "--size", "7"],
        ["--queue", "q", "--producers", "0", "--consumers", "0"],
        ["--queue", "q", "--window", "0"],
        ["--queue", "q", "--messages", "-1"],
        ["--queue", "q", "--workload", "nothing"],
        ["--queue", "q", "--report", "/no/such/folder/x.html"],
        ["--queue", "q", "--user", "ann"],
        ["--queue", "q", "--token-file", "/no/such/file"],
        ["--queue", "q", "--history", "/"],
        [],
    ],
)
def test_options_that_make_no_sense_are_a_usage_error(arguments: list[str]) -> None:
    """Exit code 2, before a JVM is started."""
    with pytest.raises(SystemExit) as ended:
        parse(["--url", "fifo://127.0.0.1:7101", *arguments])
    assert ended.value.code == 2


def test_a_login_may_come_from_files(tmp_path: Path) -> None:
    """So that no secret is on the command line."""
    secret = tmp_path / "password"
    secret.write_text("p@ss\n")
    login = ("--user", "ann", "--password-file", str(secret))
    options = parse(["--url", "fifo://127.0.0.1:7101", "--queue", "q", *login])
    assert options.url == "fifo://ann:p%40ss@127.0.0.1:7101"


def test_without_an_address_the_options_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no default cluster for a job that may run anywhere."""
    monkeypatch.delenv("FIFO_URL", raising=False)
    with pytest.raises(SystemExit):
        parse(["--queue", "q"])
