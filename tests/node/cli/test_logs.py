"""The log of a node: events as text and as JSON, and the levels."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from node.cli.logs import JsonFormatter, LineFormatter, LogFormat, LogLevel, start_logging


def record(template: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    raised = None
    if error:
        try:
            raise ValueError("broken")
        except ValueError:
            raised = sys.exc_info()
    return logging.LogRecord("node.x", logging.INFO, __file__, 1, template, arguments, raised)


def shown(template: str, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(JsonFormatter().format(record(template, *arguments)))
    assert (found.pop("level"), found.pop("logger")) == ("info", "node.x")
    assert found.pop("time").endswith("Z")
    return found


@pytest.mark.parametrize(
    ("template", "arguments", "wanted"),
    [
        (
            "event=role role=%s term=%d",
            ("leader", 7),
            {"event": "role", "role": "leader", "term": 7},
        ),
        (
            "fifo node %s ready client=%s",
            ("n1", "127.0.0.1:7101"),
            {"message": "fifo node n1 ready", "client": "127.0.0.1:7101"},
        ),
        ("raft: dialing %s failed: %s", ("n2", "no"), {"message": "raft: dialing n2 failed: no"}),
        (
            "event=no_uvloop advice=install uvloop; plain asyncio is slower",
            (),
            {"event": "no_uvloop", "advice": "install uvloop; plain asyncio is slower"},
        ),
        ("event=%s_failed peer=%s:%s", ("turn", "h", 1), {"event": "turn_failed", "peer": "h:1"}),
        ("event=full left=%d%%", (3,), {"event": "full", "left": "3%"}),
        ("time=%s level=%s", ("noon", "9"), {"time_": "noon", "level_": "9"}),
    ],
)
def test_an_event_is_a_json_object_with_its_keys(
    template: str, arguments: tuple[object, ...], wanted: dict[str, Any]
) -> None:
    assert shown(template, *arguments) == wanted


def test_no_value_adds_a_key_or_a_line() -> None:
    hostile = 'x user=root\n{"event": "y"}'
    assert shown("event=login_failed user=%s address=%s", hostile, "a") == {
        "event": "login_failed",
        "user": hostile,
        "address": "a",
    }
    assert "\n" not in JsonFormatter().format(record("user=%s", hostile, error=True))


def test_an_exception_is_part_of_the_object() -> None:
    found = json.loads(JsonFormatter().format(record("event=turn_failed", error=True)))
    assert found["exception"].endswith("ValueError: broken")


def test_text_lines_stay_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIFO_DEBUG", raising=False)
    line = LineFormatter().format(record("event=%s", "a", error=True))
    assert "level=INFO logger=node.x event=a | Traceback" in line
    assert "\n" not in line


@pytest.mark.parametrize("form", list(LogFormat))
def test_lines_below_the_level_are_left_out(
    form: LogFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIFO_DEBUG", raising=False)
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    quiet = logging.getLogger("aiohttp.access")
    access = quiet.level
    try:
        start_logging(form, LogLevel.WARNING)
        logging.getLogger("node.x").info("event=small")
        logging.getLogger("node.x").warning("event=large")
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
        quiet.setLevel(access)
    [line] = capsys.readouterr().err.splitlines()
    assert "large" in line
