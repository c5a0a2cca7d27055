"""The files for Prometheus and Grafana: every name is a metric, every expression a valid one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.metrics import documented

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "node" / "monitoring" / "alerts.yml"
DASHBOARD = ROOT / "node" / "monitoring" / "dashboard.json"
RULE_TESTS = Path(__file__).parent / "alerts_test.yml"

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool: install the Debian package prometheus"
)

_NAME = re.compile(r"\b(?:fifo_[a-z_]+[a-z]|process_[a-z_]+[a-z])\b")
_VARIABLES = {"$job": "fifo", "$queue": ".*", "$__rate_interval": "5m"}


def metrics_of(text: str) -> set[str]:
    """The metrics that an expression reads; the series of a histogram under its name."""
    return {re.sub("_(bucket|sum|count)$", "", name) for name in _NAME.findall(text)}


def expressions() -> Iterator[str]:
    """Every expression of the dashboard, as Grafana would send it."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("expr"), str):
                yield value["expr"]
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    for expression in walk(json.loads(DASHBOARD.read_text(encoding="utf-8"))):
        for variable, text in _VARIABLES.items():
            expression = expression.replace(variable, text)
        assert "$" not in expression, expression
        yield expression


def promtool(*arguments: str) -> None:
    """Run promtool, which must be satisfied."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@needs_promtool
def test_the_alerts_fire_when_they_must_and_only_then() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(RULE_TESTS))


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8")))
    tested = re.findall(
        r"alertname: (\w+),?\s+exp_alerts:\s*(\[\])?", RULE_TESTS.read_text(encoding="utf-8")
    )
    assert {name for name, silent in tested if silent} == alerts
    assert {name for name, silent in tested if not silent} == alerts


@pytest.mark.process
@needs_promtool
def test_every_expression_of_the_dashboard_is_one(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    assert len(rules) > 30
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_alerts_and_dashboard_name_metrics_that_exist() -> None:
    known = documented().keys()
    assert len(known) > 40
    named = metrics_of(ALERTS.read_text(encoding="utf-8"))
    for expression in expressions():
        named |= metrics_of(expression)
    assert not {name for name in named if name.startswith("fifo_")} - known


def test_totals_that_every_node_exports_are_read_as_a_maximum() -> None:
    """A sum would count each message once per node."""
    totals = [name for name, (_, by) in documented().items() if by == "every node"]
    assert len(totals) > 10
    read = [*expressions(), *re.findall(r"expr: (.*(?:\n {10}.*)*)", ALERTS.read_text())]
    found = 0
    for expression in read:
        for name in metrics_of(expression) & set(totals):
            pattern = rf"max(?: by \([a-z, ]+\))? ?\((?:rate|increase)\({name}\b"
            assert re.search(pattern, expression), expression
            found += 1
    assert found > 10


def test_the_dashboard_has_one_panel_for_each_place() -> None:
    """Grafana takes any JSON: what it would show over each other, or under one number, is here."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
