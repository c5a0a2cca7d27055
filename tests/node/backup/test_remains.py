"""A majority that is lost: which member to go on from, and the cluster that begins with its log."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import fifo
from bench.loopback import free_ports
from node.backup.errors import RebuildRefused
from node.backup.file import Backup
from node.backup.members import configuration_in
from node.backup.remains import End, check, end_of, remains
from node.backup.restoring import state_of
from node.cli.errors import CliError, UsageProblem
from node.cli.rebuild import file_of, rebuild
from node.cli.restore import restore
from node.config import ClusterConfig, cluster_config, cluster_id_of, load_config, to_toml
from node.journal.io.storage import OsStorage
from node.journal.passport import Keeper
from node.raft import Configuration, Journal, Member, encode
from node.testing.disk import SimStorage
from tests.node.cli.local import free_base_port
from tests.support.cluster import LocalCluster, loopback_config

pytestmark = pytest.mark.slow


def refusal(
    ends: Mapping[str, End],
    lost: Sequence[str],
    source: str = "n1",
    count: int = 3,
    moved: Sequence[str] = (),
    running: Sequence[str] = (),
) -> str:
    """The words of a refusal; empty where there is none."""
    try:
        check(cluster_config(count, 7100, Path("/nowhere")), source, ends, lost, moved, running)
    except RebuildRefused as refused:
        return str(refused)
    return ""


def test_the_member_to_go_on_from_is_the_one_with_the_greatest_end() -> None:
    n1, n2 = End(7, 1204), End(6, 1300)
    assert refusal({"n1": n1}, ["n2", "n3"]) == ""

    def of_five(ends: Mapping[str, End], source: str = "n1") -> str:
        return refusal(ends, ["n3", "n4", "n5"], source, count=5)

    assert of_five({"n1": n1, "n2": n2}) == "", "a later term, though a shorter log"
    assert of_five({"n1": n1, "n2": n1}) == ""
    assert "n1 has more" in of_five({"n1": n1, "n2": n2}, "n2")
    assert "--from n2" in of_five({"n1": n1, "n2": End(7, 1205)})


def test_a_majority_that_is_left_needs_no_rebuild() -> None:
    end = End(7, 1204)
    assert "n1 and n3 are a majority of 3" in refusal({"n1": end, "n3": end}, ["n2"])
    assert "n1 is a majority of 1" in refusal({"n1": end}, [], count=1)
    assert "of two members n1 has everything" in refusal({"n1": end}, ["n2"], count=2)


def test_a_majority_that_has_moved_is_rebuilt_and_loses_nothing() -> None:
    """By the log each of them is where it was: they do not find each other."""
    end, less = End(7, 1204), End(7, 1203)
    whole = {"n1": end, "n2": less, "n3": less}
    assert refusal(whole, [], moved=["n1", "n2"]) == ""
    assert refusal({"n1": end, "n2": less}, [], moved=["n1", "n2"]) == "", (
        "of n3 none needs to know"
    )
    assert "n1 and n3 are a majority of 3" in refusal(whole, [], moved=["n2"])
    assert "then move those that have moved" in refusal(whole, [], moved=["n2"])
    assert "n1 has more" in refusal(whole, [], "n2", moved=["n1", "n2"])
    assert refusal({"n1": end, "n2": less}, [], count=2, moved=["n2"]) == ""


def test_what_was_asked_of_members_that_run_counts_only_where_they_elect_no_leader() -> None:
    """By its new address n2 dials n3, of which no more is known: the two may confirm entries."""
    end, less = End(7, 1204), End(7, 1203)
    ends, moved = {"n1": end, "n2": less}, ["n1", "n2"]
    words = "n2 and n3 could still elect a leader and confirm more than they have now: stop n2"
    assert words in refusal(ends, [], moved=moved, running=["n2"])
    assert refusal(ends, [], moved=moved) == "", "n2 is stopped"
    assert refusal(ends, ["n3"], moved=moved, running=["n2"]) == "", "n3 never comes back"
    both = {"n1": end, "n2": less, "n3": less}
    assert "stop n2 and n3" in refusal(both, [], moved=moved, running=["n2", "n3"])
    lost = ["n3", "n4", "n5"]
    assert refusal({"n1": end, "n2": less}, lost, count=5, running=["n2"]) == ""


def test_a_member_of_which_nothing_is_known_may_have_more() -> None:
    assert "nothing is known of n3" in refusal({"n1": End(7, 1204)}, ["n2"])
    assert "nothing is known of n2 and n3" in refusal({"n1": End(7, 1204)}, [])


def opened(storage: SimStorage, config: ClusterConfig, recover: str | None = None) -> Journal:
    keeper = Keeper(lambda count: bytes(count), lambda: "20261124T020000Z")
    return Journal.open(
        storage, cluster_id=config.cluster_id, node="n1", keeper=keeper, recover=recover
    )


@pytest.mark.parametrize("recover", [None, "20261124T020000Z"], ids=["waiting", "recovering"])
def test_a_folder_without_a_journal_of_its_own_is_no_source(
    tmp_path: Path, recover: str | None
) -> None:
    config, storage = cluster_config(3, 7100, tmp_path), SimStorage()
    with pytest.raises(RebuildRefused, match="is empty"), remains(storage, config, "n1"):
        pass
    assert storage.listdir() == []
    opened(storage, config, recover).close()
    words = "is empty" if recover is None else "has lost its journal"
    with pytest.raises(RebuildRefused, match=words), remains(storage, config, "n1"):
        pass


def run(command: Callable[..., None], **options: object) -> asyncio.Future[None]:
    """A command on another thread: it has an event loop of its own."""
    return asyncio.ensure_future(asyncio.to_thread(command, **options))


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_cluster_goes_on_from_the_one_member_that_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the commands of docs/operating.md; a snapshot and entries behind it hold the messages."""
    config = loopback_config(tmp_path, 3)
    config = replace(config, raft=replace(config.raft, snapshot_bytes=1 << 20))
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(config))
    bodies = [b"%d" % number + bytes(20_000) for number in range(120)]
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        async with fifo.connect(config.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish_many("orders", bodies)
            held = await client.get("orders", 5)
            await asyncio.gather(*(message.ack() for message in held[:3]))
        with pytest.raises(CliError, match=r"n1 .* runs: stop it first"):
            await run(rebuild, config=path, source="n1", yes=True)
    finally:
        await cluster.stop()
    for name in ("n2", "n3"):
        shutil.rmtree(config.node(name).data_dir)
    with pytest.raises(CliError, match="nothing is known of n2 and n3"):
        await run(rebuild, config=path, source="n1", yes=True)
    file = tmp_path / "n1.rebuilt"
    far = ["n3=99:1"]
    with pytest.raises(CliError, match="n1 and n3 are a majority"):
        await run(rebuild, config=path, source="n1", to=file, lost=["n2"], end=far, yes=True)
    assert not file.exists()
    await run(rebuild, config=path, source="n1", to=file, lost=["n2", "n3"], yes=True)
    said = capsys.readouterr()
    end = re.search(r"up to entry (\d+) of term", said.out)
    confirmed = re.search(r"all up to entry (\d+) was confirmed, as n1 knew", said.err)
    assert end is not None
    assert confirmed is not None
    # How far the last commit was known is a matter of when each node was stopped.
    assert ("may never have been" in said.err) == (int(end[1]) > int(confirmed[1]))
    assert f"its file is {file}.toml" in said.err
    assert load_config(file_of(file)).name == "local-rebuilt"
    found = state_of(Backup.open(file)).queue_overview("orders")
    assert found is not None
    assert found["messages"] == len(bodies) - 3

    moved = tmp_path / "lost"
    config.node("n1").data_dir.parent.rename(moved)
    new = replace(config, name="again", cluster_id=cluster_id_of("again"))
    path.write_text(to_toml(new))
    await run(restore, file=file, config=path)
    cluster = LocalCluster(new)
    try:
        await cluster.start()
        async with fifo.connect(new.url) as client:
            left = await client.get("orders", len(bodies), wait=10)
            assert [message.body for message in left] == bodies[3:]
            await asyncio.gather(*(message.ack() for message in left))
    finally:
        await cluster.stop()


def changed(count: int) -> Configuration:
    """The members n1 up to that one, at other addresses than those of `cluster_config`."""
    members = (
        Member(f"n{one}", ("127.0.0.9", one), f"127.0.0.9:1{one}", f"127.0.0.9:2{one}", b"j" * one)
        for one in range(1, count + 1)
    )
    return Configuration(1, tuple(members))


def logged(folder: Path, config: ClusterConfig, name: str, last: int, count: int) -> None:
    """A journal that ends with entry `last`, and by which these are the members."""
    folder.mkdir(parents=True)
    journal = Journal.open(OsStorage(folder), cluster_id=config.cluster_id, node=name)
    journal.log.add(encode(changed(count)), 1, 4)
    for index in range(2, last + 1):
        journal.log.add(b"\x01", index, 4)
    journal.log.set_term(4, None)
    journal.close()


def test_a_rebuild_goes_by_the_members_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file names one of four: of the others the command has to know, too."""
    config = cluster_config(1, free_base_port(), tmp_path)
    path, file = tmp_path / "cluster.toml", tmp_path / "n1.rebuilt"
    path.write_text(to_toml(config))
    logged(config.nodes[0].data_dir, config, "n1", 3, 4)
    with pytest.raises(CliError, match="nothing is known of n2, n3 and n4"):
        rebuild(config=path, source="n1", to=file, yes=True)
    with pytest.raises(UsageProblem, match="no member is named 'n5'; they are n1, n2, n3, n4"):
        rebuild(config=path, source="n1", to=file, lost=["n5"], yes=True)
    rebuild(config=path, source="n1", to=file, lost=["n2", "n3", "n4"], yes=True)
    assert "the members are those of the log of n1: n1, n2, n3, n4" in capsys.readouterr().err
    new = load_config(file_of(file))
    assert [str(node.peer) for node in new.nodes] == [f"127.0.0.9:{one}" for one in (1, 2, 3, 4)]
    own = config.nodes[0].data_dir
    assert new.node("n1").data_dir == own
    assert new.node("n4").data_dir == own.with_name(f"{own.name}-n4")


def test_members_that_have_moved_begin_anew_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three came up at other addresses; the log has the old ones."""
    config = cluster_config(3, free_base_port(), tmp_path)
    path, file = tmp_path / "cluster.toml", tmp_path / "n1.rebuilt"
    path.write_text(to_toml(config))
    logged(config.node("n1").data_dir, config, "n1", 5, 3)
    logged(config.node("n2").data_dir, config, "n2", 4, 3)
    with pytest.raises(CliError, match="n1 and n2 are a majority of 3"):
        rebuild(config=path, source="n1", to=file, yes=True)
    ports = free_ports(3)
    moved = ["n1=127.0.1.1", "n2=" + ",".join(f"127.0.0.1:{port}" for port in ports)]
    with pytest.raises(CliError, match="n1 has more: it ends with entry 5 of term 4"):
        rebuild(config=path, source="n2", to=file, addresses=moved, yes=True)
    rebuild(config=path, source="n1", to=file, addresses=moved, yes=True)
    assert "so nothing that was confirmed is missing" in capsys.readouterr().err
    new = load_config(file_of(file))
    first, second, third = new.nodes
    assert (str(first.client), str(first.peer)) == ("127.0.1.1:11", "127.0.1.1:1")
    assert [second.client.port, second.peer.port, second.http.port] == ports
    assert str(third.peer) == "127.0.0.9:3"
    assert file_of(file).stat().st_mode & 0o777 == 0o600
    restore(file=file, config=file_of(file), node=["n3"])
    with remains(OsStorage(new.node("n3").data_dir), new, "n3") as journal:
        assert configuration_in(journal) is None, "the new cluster goes by its file"


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("n2", "no address is given"),
        ("n9=127.0.0.9", "no member is named 'n9'"),
        ("n2=127.0.0.9:7101,127.0.0.9:7102", "2 addresses are given"),
        ("n2=0.0.0.0", "others cannot dial the address of every machine"),
    ],
)
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, word: str, problem: str) -> None:
    config = cluster_config(3, free_base_port(), tmp_path)
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(config))
    logged(config.node("n1").data_dir, config, "n1", 5, 3)
    with pytest.raises(UsageProblem, match=problem):
        rebuild(config=path, source="n1", to=tmp_path / "b", addresses=[word], yes=True)


def test_the_end_of_a_log_is_its_last_entry(tmp_path: Path) -> None:
    config, storage = cluster_config(3, 7100, tmp_path), SimStorage()
    journal = Journal.open(storage, cluster_id=config.cluster_id, node="n1")
    for index in (1, 2, 3):
        journal.log.add(b"\x01", index, 4)
    journal.log.set_term(9, None)
    journal.close()
    with remains(storage, config, "n1") as found:
        assert end_of(found) == End(4, 3)
