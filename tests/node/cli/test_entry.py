"""An entry that ends every node, and the way past it by the commands of docs/operating.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import fifo
from node.backup.errors import SkipRefused
from node.backup.remains import remains
from node.backup.skipping import LACKS, check, look
from node.broker import entry
from node.cli.main import run
from node.config import cluster_config, to_toml
from node.journal.io.storage import OsStorage
from node.raft import Journal
from tests.node.cli.disks import NAMES, WAIT_SECONDS, Nodes, consumed, publish
from tests.node.cli.local import free_base_port
from tests.support.cluster import passed
from tests.support.raising import POISON

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from node.config import ClusterConfig

pytestmark = pytest.mark.slow

RAISING = "tests.support.raising"
CHECKSUM = 0xAB12CD34


def refusal(words: Mapping[str, str], lost: Sequence[str] = ()) -> str:
    """The words of a refusal; empty where there is none."""
    try:
        check(["n1", "n2", "n3"], 1204, CHECKSUM, words, lost)
    except SkipRefused as refused:
        return str(refused)
    return ""


def test_each_member_has_to_be_known_before_an_entry_is_skipped() -> None:
    seen = {"n1": "ab12cd34", "n2": "ab12cd34"}
    assert refusal(seen | {"n3": "ab12cd34"}) == ""
    assert refusal(seen | {"n3": LACKS}) == ""
    assert refusal(seen, ["n3"]) == ""
    assert "nothing is known of n3" in refusal(seen)
    assert "--seen n3=WORD" in refusal(seen)
    assert "of n3 has the checksum 00000001" in refusal(seen | {"n3": "00000001"})
    assert "no member has an entry 1204" in refusal({}, ["n1", "n2", "n3"])


def made(folder: Path, payload: bytes) -> ClusterConfig:
    """A cluster of one whose log ends with this entry of the broker."""
    config = cluster_config(1, 7100, folder)
    (folder / "cluster.toml").write_text(to_toml(config))
    data = config.node("n1").data_dir
    data.mkdir(parents=True)
    journal = Journal.open(OsStorage(data), cluster_id=config.cluster_id, node="n1")
    journal.log.add(b"\x01", 1, 1)
    journal.log.add(b"\x10" + payload, 2, 1)
    journal.log.sync()
    journal.close()
    return config


def packed(*plain: Sequence[object]) -> bytes:
    """An entry of these commands."""
    parts = [entry.pack_command(one) for one in plain]
    return b"".join(entry.pack(parts, [], version=1, stamp_ms=1, wall_ms=2))


def look_at(config: ClusterConfig, index: int | None) -> object:
    with remains(OsStorage(config.node("n1").data_dir), config, "n1") as journal:
        return look(journal, "n1", index)


def test_an_entry_that_can_be_applied_is_not_skipped(tmp_path: Path) -> None:
    config = made(tmp_path, packed())
    assert look_at(config, None) is None
    with pytest.raises(SkipRefused, match="n1 can apply entry 2"):
        look_at(config, 2)


@pytest.mark.parametrize("cause", [MemoryError(), OSError(5, "Input/output error")])
def test_an_entry_is_not_skipped_for_what_the_machine_lacks(
    cause: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path, packed())

    def failing(*_: object) -> None:
        raise cause

    monkeypatch.setattr("node.broker.machine_host.MachineHost.apply", failing)
    with pytest.raises(SkipRefused, match="the cause is this machine's"):
        look_at(config, 2)


def test_an_entry_of_a_newer_release_is_not_skipped(tmp_path: Path) -> None:
    payload = bytearray(packed())
    payload[2] = 99
    with pytest.raises(SkipRefused, match="use the newer program"):
        look_at(made(tmp_path, bytes(payload)), 2)


def test_the_commands_say_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = made(tmp_path, packed(["no such command"]))
    path = str(tmp_path / "cluster.toml")
    assert run(["entry", "show", "--config", path]) == 0
    shown = capsys.readouterr().out
    assert "entry       2 of term 1" in shown
    assert run(["entry", "show", "3", "--config", path]) == 1
    assert "n1 comes to no entry 3: entry 2 cannot be applied" in capsys.readouterr().err
    assert run(["entry", "skip", "2", "nonsense", "--config", path]) == 2
    assert "is no checksum" in capsys.readouterr().err
    assert run(["entry", "skip", "2", "00000001", "--config", path, "--yes"]) == 1
    assert "of n1 has the checksum" in capsys.readouterr().err
    assert run(["entry", "skip", "2", "00000001", "--config", path, "--seen", "n1"]) == 2
    assert "write it as n2=ab12cd34" in capsys.readouterr().err
    seen = look_at(config, 2)
    assert run(["entry", "skip", "2", seen.word, "--config", path]) == 2  # type: ignore[attr-defined]
    assert "is never done, on no node" in capsys.readouterr().err
    for _ in range(2):  # The second time it is skipped already.
        assert run(["entry", "skip", "2", seen.word, "--config", path, "--yes"]) == 0  # type: ignore[attr-defined]
        assert "n1 skips entry 2" in capsys.readouterr().out
    assert run(["entry", "show", "--config", path]) == 0
    assert "n1 can apply all of its log" in capsys.readouterr().err


class Raising(Nodes):
    """Three nodes of a program with a mistake, and its commands."""

    module = RAISING

    async def type(self, *arguments: str, module: str = RAISING) -> tuple[int, str, str]:
        """A command of that program, or of another; (exit code, stdout, stderr)."""
        command = [sys.executable, "-m", module, *arguments]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=WAIT_SECONDS
        )
        return done.returncode, done.stdout, done.stderr

    async def entry(self, *arguments: str, module: str = RAISING) -> tuple[int, str, str]:
        return await self.type(
            "entry", *arguments, "--config", str(self.config.path), module=module
        )

    async def until_two_ended(self) -> None:
        """The leader comes to the entry, and after it the next one; the third is no majority."""
        async with asyncio.timeout(WAIT_SECONDS):
            while sum(one.poll() is not None for one in self.processes.values()) < 2:
                await passed(0.05)


@pytest.mark.cluster
@pytest.mark.timeout(240)
async def test_an_entry_that_ends_every_node_is_skipped_by_all_of_them(tmp_path: Path) -> None:
    """Also by a member that has lost its disk meanwhile, and gets the log of the others."""
    nodes = Raising(cluster_config(3, free_base_port(), tmp_path), tmp_path)
    for name in NAMES:
        nodes.start(name)
    try:
        async with fifo.connect(nodes.config.url, connect_timeout=WAIT_SECONDS) as client:
            await client.declare(fifo.QueueSpec("orders"))
            sent = await publish(client)
            with contextlib.suppress(fifo.FifoError, TimeoutError):
                await client.declare(fifo.QueueSpec(POISON), timeout=2.0)
        await nodes.until_two_ended()
        ended = next(name for name in NAMES if nodes.processes[name].poll() is not None)
        assert "fifo entry show" in nodes.log(ended).read_text().splitlines()[-1]
        index = int(nodes.log(ended).read_text().rpartition("fifo entry show ")[2].split()[0])
        code, _, said = await nodes.entry("skip", str(index), "00000000")
        assert code == 1
        assert "stop every node first" in said
        for name in NAMES:
            nodes.kill(name)

        code, out, said = await nodes.entry("show", "--node", ended, "--json")
        assert code == 0, said
        seen = json.loads(out)[0]
        assert (seen["index"], seen["commands"]) == (index, "1 Declare")
        order = ("skip", str(index), seen["checksum"], "--yes", "--json")
        code, _, said = await nodes.entry(*order, module="node")
        assert code == 1
        assert f"can apply entry {index}" in said
        wiped = next(name for name in NAMES if name != ended)
        shutil.rmtree(nodes.config.node(wiped).data_dir)
        code, _, said = await nodes.entry(*order)
        assert f"nothing is known of {wiped}" in said
        code, out, said = await nodes.entry(*order, "--lost", wiped)
        assert code == 0, said
        assert wiped not in json.loads(out)["nodes"]

        for name in NAMES:
            nodes.config.node(name).data_dir.mkdir(exist_ok=True)
            nodes.start(name)
        async with fifo.connect(nodes.config.url, connect_timeout=WAIT_SECONDS) as client:
            assert await consumed(client, len(sent)) == sent
        await nodes.until_level()
        url = str(nodes.config.url)
        code, out, said = await nodes.type("verify", "--url", url, "--json")
        assert code == 0, (out, said)
        for name in NAMES:
            lines = (nodes.config.node(name).data_dir / "audit" / "audit.0.jsonl").read_text()
            found = [json.loads(line) for line in lines.splitlines()]
            assert [one["what"]["index"] for one in found if one["verb"] == "skip_entry"] == [index]
            assert nodes.processes[name].poll() is None
    finally:
        nodes.stop()
