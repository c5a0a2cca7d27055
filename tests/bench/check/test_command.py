"""The command as its users call it: exit codes, what it prints, what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.check.command import parse, run
from bench.processes import environment
from tests.jepsen import stories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it; its temporary files can be seen."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "bench.check", *arguments],
        env=environment({"TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_bad_history_has_code_1_its_examples_and_a_page(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    path = stories.FOLDER / "bad-S3-back-after-its-ack.jsonl"
    done = call(str(path), "--json", "--report", str(report), folder=tmp_path)
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert [broken["rule"] for broken in verdict["broken"]] == ["S3"]
    (example,) = verdict["broken"][0]["examples"]
    assert example["subject"] == "1.1.1"
    assert {event["f"] for event in example["events"]} >= {"settle", "checkout"}
    assert "1 of 17 rules are broken: S3." in report.read_text()
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_broken_line_has_code_2_and_its_number(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text((stories.FOLDER / "good-acked.jsonl").read_text() + '{"type":"ok"')
    code = run(parse([str(path), "--json"]), tmp_path, lambda *_: nullcontext(spark))
    printed = capsys.readouterr()
    assert code == 2
    assert f"{path}:" in printed.err
    assert "the last line is cut" in printed.err
    assert "--skip-broken" in printed.err
    assert printed.out == ""


@pytest.mark.process
def test_a_history_that_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    done = call(str(tmp_path / "none"), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path / 'none'}: there is no such file or folder\n"


@pytest.mark.parametrize(
    "arguments", [["h", "--memory", "much"], ["h", "--report", "/nowhere/x.html"], []]
)
def test_options_that_make_no_sense_are_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
