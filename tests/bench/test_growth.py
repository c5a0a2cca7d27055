"""The curves of growth: their sizes, tables and pictures, and a run of each on small sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.growth import pictures, report
from bench.growth.__main__ import main
from bench.growth.curves import BATCHES, CURVES, LONE, LONGEST, MEMORY, STALL
from bench.processes import environment
from tests.test_pictures import PICTURE_BYTES_MAX

pytestmark = pytest.mark.slow

DEPTH, DIGEST = (
    next(curve for curve in CURVES if curve.name == name) for name in ("depth", "digest")
)

FOUND: report.Found = {
    ("depth", BATCHES, 1_000): [4.0, 6.0, 5.0],
    ("depth", BATCHES, 10_000): [10.0],
    ("depth", MEMORY, 10_000): [24.0],
}


def test_sizes_end_at_the_bound_and_the_first_is_always_there() -> None:
    assert DEPTH.upto(100_000) == [1_000, 10_000, 100_000]
    assert DEPTH.upto(1) == [1_000]


def test_a_table_has_medians_with_spread_and_how_far_the_last_is_from_the_first() -> None:
    assert report.table_of(FOUND, DEPTH) == [
        ["messages that wait", BATCHES, MEMORY],
        ["1,000", "5.0 (4.0 to 6.0)", ""],
        ["10,000", "10.0", "24.0"],
        ["last to first", "x 2.00", ""],
    ]


def test_what_was_measured_comes_back_from_its_json() -> None:
    again = report.from_json(json.loads(json.dumps(report.as_json(FOUND))))
    assert again == FOUND


def test_a_page_gets_a_line_of_each_curve_with_its_first_and_last_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "run.json"
    kept.write_text(json.dumps({"figures": report.as_json(FOUND)}))
    assert main(["--from", str(kept), "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| what there is more of | from / to | batches, us | bytes each |",
        "| -- | -- | -- | -- |",
        "| messages that wait | 1,000 / 10,000 | 5.0 / 10.0 | 24.0 |",
    ]


def test_an_unknown_curve_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["width"])
    assert ended.value.code == 2
    assert "no curve 'width'; there are depth, locks, keys" in capsys.readouterr().err


def test_pictures_have_a_panel_of_each_curve_and_are_the_same_each_time(tmp_path: Path) -> None:
    found = {
        (curve.name, figure, size): [1.0, 2.0, 3.0]
        for curve in CURVES
        for figure in curve.figures
        for size in curve.sizes
    }
    written = pictures.draw(found, tmp_path / "pictures")
    assert [path.name for path in written] == [
        "growth-cost.svg",
        "growth-memory.svg",
        "growth-longest.svg",
    ]
    again = pictures.draw(found, tmp_path / "again")
    for first, second in zip(written, again, strict=True):
        text = first.read_text()
        assert text == second.read_text(), "the same figures give another file"
        assert "prefers-color-scheme" in text
        assert "messages that wait" in text
        assert len(text) < PICTURE_BYTES_MAX


@pytest.mark.cluster
def test_each_kind_of_curve_is_measured_on_real_nodes_and_leaves_nothing(tmp_path: Path) -> None:
    small = ("--up-to", "10", "--messages", "200", "--repeats", "1", "--idle", "0.2")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.growth", "consumers", "snapshot", "digest", *small),
            *("--json", "--dir", str(tmp_path)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = report.from_json(json.loads(done.stdout)["figures"])
    assert {(curve, size) for curve, _, size in found} == {
        *(("consumers", 1), ("consumers", 10)),
        ("snapshot", 1_000),
        ("digest", 1_000),
    }
    for name, figures in (("snapshot", {LONGEST, STALL}), ("digest", set(DIGEST.figures))):
        assert {figure for curve, figure, _ in found if curve == name} == figures
    for key, values in found.items():
        assert all(value > 0 for value in values) or key[1] != LONE, key
    assert list(tmp_path.iterdir()) == []
