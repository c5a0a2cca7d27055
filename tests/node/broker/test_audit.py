"""The audit log: a line for each change, on every node, made from the replicated log."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

import fifo
from fifo.machine import Machine, commands
from fifo.wire.messages import Redrive
from node.broker import entry
from node.broker.audit import Auditing, AuditLog, Line, noted
from node.broker.machine_host import MachineHost
from node.journal import limits
from node.journal.audit import AuditFiles
from node.journal.io.jobs import Inline
from node.journal.skips import Skip
from tests.node.http.test_api import calling
from tests.support.cluster import eventually, running
from tests.support.users import EVERYTHING, user


def lines_of(folder: Path) -> list[Line]:
    """The lines of a node, the oldest first."""
    return list(AuditFiles(folder).lines())[::-1]


async def refused(work: Awaitable[Any]) -> None:
    with pytest.raises(fifo.PermissionDenied):
        await work


@pytest.mark.cluster
async def test_every_node_has_a_line_of_every_change_and_of_what_was_refused(
    tmp_path: Path,
) -> None:
    ops = user("ops", **EVERYTHING, monitor=True, operate=True)
    bob = user("bob", consume=("orders",))
    async with running(tmp_path, 3, users=(ops, bob)) as cluster:
        leader = await cluster.leader()
        async with (
            fifo.connect(cluster.url, token="ops-token", name="desk") as client,
            fifo.connect(cluster.url, token="bob-token") as other,
            calling(
                cluster.followers()[0], headers={"Authorization": "Bearer ops-token"}
            ) as caller,
        ):
            await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
            await client.update("orders", max_length=9)
            with pytest.raises(fifo.InvalidArgument):
                await client.update("orders", dead_letter="orders")
            await client.publish_many("orders", [b"1", b"2"])
            for _ in range(3):
                await refused(other.purge("orders"))
            await caller.ok("POST", "/queues/orders/pause")
            await client.move("orders", "dlq", 1)
            await client.redrive("dlq", "orders", reason="expired")
            await client.delete("orders")
            found = await client.audit()
            await refused(other.audit())
            shown = [(line.verb, line.queue, line.user, line.outcome) for line in found[::-1]]
            assert shown == [
                ("declare", "orders", "ops", "done"),
                ("update", "orders", "ops", "done"),
                ("update", "orders", "ops", "refused"),
                ("purge", "orders", "bob", "refused"),
                ("pause", "orders", "ops", "done"),
                ("move", "orders", "ops", "done"),
                ("redrive", "dlq", "ops", "done"),
                ("delete", "orders", "ops", "done"),
            ]
            (deleted, redriven, moved, paused, purged, wrong, updated, declared) = found
            assert (declared.before, declared.after) == (None, declared.after)
            assert declared.after is not None
            assert declared.after["dead_letter"] == "dlq"
            assert (updated.before, updated.after) == ({"max_length": None}, {"max_length": 9})
            assert (updated.client, updated.what) == ("desk", {"changes": {"max_length": 9}})
            assert updated.address.startswith("127.0.0.1:")
            assert wrong.reason is not None
            assert purged.reason == "permission_denied"
            assert paused.client.endswith(" for 127.0.0.1")
            assert (paused.before, paused.after) == ({"paused": False}, {"paused": True})
            assert (moved.before, moved.after) == ({"ready": 2}, {"ready": 1})
            assert redriven.what["options"]["filter"] == {"reason": "expired"}
            assert deleted.after is None

            assert [one.id for one in await client.audit(user="bob")] == [purged.id]
            assert [one.id for one in await client.audit("dlq")] == [redriven.id]
            older = await client.audit(before=paused.id, limit=2)
            assert [one.id for one in older] == [purged.id, wrong.id]
            page = await caller.ok("GET", "/audit?user=ops&limit=1")
            assert (page["items"][0]["id"], page["next"]) == (deleted.id, deleted.id)
            assert (await caller.ok("GET", f"/audit?after={declared.id}"))["items"] == []

            # Its leader is lost with its disk: every other node has every line.
            await cluster.crash(leader.me.name)
            assert [one.id for one in await client.audit()] == [one.id for one in found]
            await client.transfer_leadership((cluster.followers()[0]).me.name)
            assert (await client.audit(limit=1))[0].outcome == "begun"
        folders = [node.me.data_dir for node in cluster.nodes.values()]
        await eventually(lambda: [len(lines_of(one)) for one in folders] == [9, 9])
        names = list(cluster.nodes)
        await cluster.stop(*names)
        before = [lines_of(one) for one in folders]
        assert before[0] == before[1]
        await cluster.start(*names)  # what is applied again is not written again
        await cluster.leader()
        await cluster.stop(*names)
        assert [lines_of(one) for one in folders] == before


class Applied:
    """A host whose entries are made here."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.host = MachineHost(Machine(), lambda index: memoryview(b""))
        self.host.auditing = Auditing(lambda: self.host.machine, self.lines.extend)
        self.index = 0

    def entry(self, *plain: Any) -> list[Any]:
        """Apply an entry of these commands and notes; the replies."""
        self.index += 1
        packed = [entry.pack_command(one) for one in plain]
        payload = b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=2))
        return list(self.host.apply(self.index, memoryview(payload))[2].replies)


def test_a_note_has_its_place_among_the_replies_and_may_end_an_entry() -> None:
    applied = Applied()
    declare = commands.to_list(commands.Declare("q"))
    pause = commands.to_list(commands.PauseQueue("q"))
    lead = commands.to_list(commands.Lead(1))
    applied.entry(lead)
    note = ["note", "ann", "there", "desk", "pause", "q", {}, ""]
    replies = applied.entry(declare, note, pause, declare)
    assert [reply is None for reply in replies] == [False, True, False, False]
    assert [(line["id"], line["outcome"]) for line in applied.lines] == [("2.2", "done")]
    # The command comes with the next entry; or never, for another leader has begun.
    applied.entry(note)
    applied.entry(commands.to_list(commands.PauseQueue("gone")))
    assert [line["outcome"] for line in applied.lines] == ["done", "refused"]
    applied.entry(note)
    applied.entry(commands.to_list(commands.Lead(2)), pause)
    assert len(applied.lines) == 2
    assert applied.entry([*note[:-1], "begun"]) == [None]
    assert applied.lines[-1]["outcome"] == "begun"


def test_an_entry_that_is_skipped_has_a_line_and_so_has_the_note_before_it() -> None:
    applied = Applied()
    applied.entry(["note", "ann", "there", "desk", "pause", "q", {}, ""])
    payload = b"".join(entry.pack([], [], version=1, stamp_ms=1, wall_ms=1_790_000_000_000))
    order = Skip(2, 0xAB12CD34, "bob on n1")
    applied.host.skip(2, memoryview(payload), order)
    assert [(line["id"], line["user"], line["verb"]) for line in applied.lines] == [
        ("2.0", "ann", "pause"),
        ("2.1", "bob on n1", "skip_entry"),
    ]
    assert applied.lines[0]["reason"] == "its entry was skipped"
    assert applied.lines[1]["what"] == {"index": 2, "checksum": "ab12cd34"}
    assert applied.lines[1]["outcome"] == "done"
    assert applied.lines[1]["time"].startswith("2026")
    applied.index = 2
    applied.entry(commands.to_list(commands.Declare("q")))
    assert len(applied.lines) == 2


def test_a_note_is_short_whatever_is_asked() -> None:
    asked = Redrive("q", None, {"filter": {"headers": {f"h{n}": "x" * 9_000 for n in range(99)}}})
    assert len(json.dumps(noted(asked, "ann", "there", "desk"))) < 20_000


def test_the_files_are_bounded_and_a_cut_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_FILE_BYTES", 1_000)
    log = AuditLog(AuditFiles(tmp_path), Inline())
    for index in range(1, 200):
        log.write([{"id": f"{index}.1", "text": "x" * 50}])
    folder = tmp_path / "audit"
    files = sorted(folder.iterdir())
    assert len(files) == limits.AUDIT_FILES
    assert sum(file.stat().st_size for file in files) <= limits.AUDIT_FILES * 1_000
    newest = folder / "audit.0.jsonl"
    newest.write_bytes(newest.read_bytes()[:-10])
    again = AuditFiles(tmp_path)
    assert again.last_id() == (198, 1)
    again.append([{"id": "200.1", "text": "y"}])
    assert [line["id"] for line in AuditFiles(tmp_path).lines()][:2] == ["200.1", "198.1"]


def test_a_disk_that_takes_no_line_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("a file where the folder should be")
    log = AuditLog(AuditFiles(tmp_path), Inline())
    log.write([{"id": "1.1"}])
    assert "event=audit_not_written lines=1" in caplog.text
    (tmp_path / "audit").unlink()
    log.write([{"id": "2.1"}])
    assert AuditFiles(tmp_path).last_id() == (2, 1)
