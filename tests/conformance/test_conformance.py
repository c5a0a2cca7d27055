"""The suite itself: a real node keeps every rule, and one that is changed is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Sessions
from node.broker.effects import Effects
from tests.conformance.__main__ import FAILED, NOT_ASKED, main
from tests.conformance.suite import rule as rules
from tests.support.cluster import running
from tests.support.users import EVERYTHING, certificate, user

pytestmark = pytest.mark.cluster


async def asked(folder: Path, *more: str) -> int:
    """Run the suite against a node of its own."""
    async with running(folder, count=1) as cluster:
        node = await cluster.leader()
        return await asyncio.to_thread(main, [f"fifo://{node.me.client}", "--json", *more])


async def test_a_node_keeps_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = await asked(tmp_path)
    outcomes = json.loads(capsys.readouterr().out)
    assert [one for one in outcomes if not one["holds"]] == []
    assert (code, len(outcomes)) == (0, len(rules.listed))


async def test_a_node_with_users_and_tls_keeps_every_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = certificate(tmp_path / "certs")
    ann = user("ann", **EVERYTHING, monitor=True, operate=True)
    async with running(tmp_path / "node", 1, users=(ann,), tls=made.settings) as cluster:
        node = await cluster.leader()
        url = f"fifos://ann:ann-password@{node.me.client}?ca={made.ca}"
        code = await asyncio.to_thread(main, [url, "--json"])
    outcomes = json.loads(capsys.readouterr().out)
    assert [one for one in outcomes if not one["holds"]] == []
    assert (code, len(outcomes)) == (0, len(rules.listed))


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _without_duplicates(self: Connection, correlation: int, item: tuple[object, ...]) -> None:
    _confirm(self, correlation, (*item[:2], 0, *item[3:]))


def _taken(self: Sessions, number: int, role: int, epoch: int, *, taken: bool) -> None:
    _fence(self, number, role, epoch, taken=not taken)


_confirm, _fence = Connection.confirm, Sessions.fence

MUTANTS: list[tuple[type, str, Callable[..., None], str]] = [
    (Effects, "_mark_resumed", _nothing, "resume"),
    (Effects, "_notify", _nothing, "consumer_removed"),
    (Connection, "confirm", _without_duplicates, "duplicates"),
    (Sessions, "fence", _taken, "session_taken"),
    (Sessions, "sweep", _nothing, "heartbeats"),
]


@pytest.mark.parametrize(
    ("part", "name", "mutant", "rule"), MUTANTS, ids=[one[3] for one in MUTANTS]
)
async def test_a_changed_node_breaks_the_rule(
    part: type,
    name: str,
    mutant: Callable[..., None],
    rule: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.conformance.peer.REPLY_S", 2.0)
    monkeypatch.setattr(part, name, mutant)
    assert await asked(tmp_path, "--only", rule) == FAILED
    broken = [one["rule"] for one in json.loads(capsys.readouterr().out) if not one["holds"]]
    assert rule in broken


def test_without_a_node_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("fifo://127.0.0.1:1", "http://127.0.0.1:80", "fifo://nowhere"):
        assert main([url]) == NOT_ASKED
        assert capsys.readouterr().err.startswith("cannot ask a node: ")
