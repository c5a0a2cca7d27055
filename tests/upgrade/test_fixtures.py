"""Files that 0.1.0 wrote are read by the code of today, and written again byte by byte.

The fixtures were made by the release's own wheels (`tests/upgrade/maker.py`) and never change. A
test here that fails says that a format, or what an entry does, has changed without a version: give
the change one in `fifo/words/versions.py`: a cluster in the first version goes on as before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from fifo.machine import Machine, commands
from fifo.machine.contract import live_entries
from fifo.wire import Decoder as ClientDecoder
from fifo.wire import Frame
from fifo.wire import encode as encode_client
from fifo.wire.limits import FRAME_BYTES_MAX
from fifo.words import versions
from node.broker import entry
from node.broker.machine_host import MachineHost
from node.peers import frames
from node.peers.handshake import TELLS, DialerSide, Identity, ListenerSide
from node.testing.disk import SimStorage
from tests.machine import pinned
from tests.node.journal.test_journal_format import KEPT, SNAPSHOT, example_with_snapshot
from tests.support.journals import open_journal
from tests.upgrade import telling
from tests.upgrade.maker import FIXTURES
from tests.upgrade.written import handshake, message_of

RELEASE = "0.1.0"
SEGMENT = "0000000001-00000000000000000001.segment"


def content(name: str) -> bytes:
    """A file of the release."""
    return (FIXTURES / RELEASE / name).read_bytes()


def unpacked(name: str) -> Any:
    return msgpack.unpackb(content(name), strict_map_key=False)


def again(payload: bytes) -> bytes:
    """An entry, read and written again in the first version."""
    read = entry.unpack(memoryview(payload))
    packed = [
        entry.pack_command(commands.to_list(commands.from_list(list(one)))) for one in read.commands
    ]
    parts = entry.pack(
        packed,
        [read.area],
        version=versions.FIRST,
        stamp_ms=read.stamp_ms,
        wall_ms=read.wall_ms,
    )
    return b"".join(map(bytes, parts))


STORIES: dict[str, Any] = unpacked("stories")


@pytest.mark.parametrize("name", STORIES)
def test_entries_of_the_release_do_what_they_did(name: str) -> None:
    """Replies, effects and what queues hold are in the running hash, all else in the digest."""
    story = STORIES[name]
    entries = dict(story["entries"])
    host = MachineHost(Machine(), lambda index: memoryview(entries[index]))
    for index, payload in story["entries"]:
        host.apply(index, memoryview(payload))
    machine = host.machine
    assert machine.version == versions.FIRST
    assert machine.running_hash == story["hash"]
    assert machine.digest() == story["digest"]
    assert [list(some) for some in live_entries(machine.freeze())] == story["live"]


def test_an_entry_with_every_command_is_read_and_written_again() -> None:
    for payload in (content("commands"), *(one[1] for one in STORIES["pinned"]["entries"])):
        assert again(payload) == payload


def test_there_is_an_entry_of_every_command_of_the_release() -> None:
    codes = {one[0] for one in entry.unpack(memoryview(content("commands"))).commands}
    assert codes == set(range(1, 39))


MEMBERS: dict[str, Any] = unpacked("members")


@pytest.mark.parametrize("name", MEMBERS)
def test_a_message_of_a_member_is_read_and_written_again(name: str) -> None:
    check_message(name, MEMBERS[name][1])


def check_message(name: str, encoded: bytes) -> None:
    """Check that these bytes are those of a message, read, written again and made anew."""
    assert b"".join(map(bytes, frames.encode(read_message(encoded)))) == encoded
    _, fields = frames.FORMATS[name]
    assert b"".join(map(bytes, frames.encode(message_of(name, fields)))) == encoded


def read_message(encoded: bytes) -> Any:
    header_bytes, _ = frames.LENGTHS.unpack_from(encoded)
    end = frames.LENGTHS.size + header_bytes
    view = memoryview(encoded)
    return frames.decode(view[frames.LENGTHS.size : end], view[end:])


def test_a_new_message_of_members_is_of_a_newer_protocol() -> None:
    """A member of 0.1.0 closes the connection at a message that it does not know."""
    assert frames.FORMATS.keys() - MEMBERS.keys() == frames.TOLD_TYPES


def test_a_handshake_with_known_secrets_is_what_it_was() -> None:
    assert handshake() == content("handshake")


def test_the_release_is_dialed_and_dials_as_it_does() -> None:
    """Each side of today meets the frames that the other side of 0.1.0 sent."""
    hello, challenge, proof, welcome = unpacked("handshake")

    def identity(name: str, byte: bytes) -> Identity:
        return Identity(name=name, cluster_id=b"c" * 16, secret=b"secret", incarnation=byte * 16)

    dialer = DialerSide(identity("n2", b"d"), lambda size: b"D" * size, "n1")
    assert dialer.hello() == hello
    assert dialer.received(challenge) == (proof, False)
    assert dialer.received(welcome) == (None, True)
    listener = ListenerSide(identity("n1", b"l"), lambda size: b"L" * size, frozenset({"n2"}))
    assert listener.received(hello) == (challenge, False)
    assert listener.received(proof) == (welcome, True)
    assert not dialer.peer_tells
    assert not listener.peer_tells


TELLING: dict[str, Any] = msgpack.unpackb((telling.FOLDER / "members").read_bytes())


@pytest.mark.parametrize("name", TELLING)
def test_a_message_of_protocol_5_is_read_and_written_again(name: str) -> None:
    check_message(name, TELLING[name][1])


def test_each_message_of_protocol_5_has_left_its_bytes() -> None:
    assert TELLING.keys() == frames.TOLD_TYPES


def test_an_offer_of_a_snapshot_with_the_members_of_its_index_is_what_it_was() -> None:
    encoded = (telling.FOLDER / "offer").read_bytes()
    assert telling.files()["offer"] == encoded
    message = read_message(encoded)
    assert message["members"] == b"of today"
    assert b"".join(map(bytes, frames.encode(message))) == encoded


def test_a_handshake_of_members_that_tell_is_what_it_was() -> None:
    assert handshake(TELLS) == (telling.FOLDER / "handshake").read_bytes()


CLIENTS: list[Any] = unpacked("clients")


@pytest.mark.parametrize(("name", "frame"), CLIENTS, ids=[name for name, _ in CLIENTS])
def test_a_frame_of_the_client_protocol_is_read_and_written_again(name: str, frame: bytes) -> None:
    decoder = ClientDecoder(FRAME_BYTES_MAX)
    decoder.feed(frame)
    read = decoder.next_frame()
    assert isinstance(read, Frame)
    assert type(read.message).__name__ == name
    written = encode_client(read.message, read.correlation, [read.raw])
    assert b"".join(map(bytes, written)) == frame


def test_a_snapshot_is_read_and_written_again() -> None:
    assert Machine.restore(content("snapshot")).snapshot() == content("snapshot")
    assert pinned.build().machine.snapshot() == content("snapshot")


@pytest.mark.parametrize("name", [SEGMENT, SNAPSHOT, KEPT, "synced"])
def test_a_file_of_the_journal_is_written_as_it_was(name: str) -> None:
    assert example_with_snapshot().content(name) == content(name)


def test_a_journal_is_opened() -> None:
    storage = SimStorage()
    for name in (SEGMENT, SNAPSHOT, KEPT, "synced"):
        file = storage.create(name)
        file.write(0, (content(name),))
        file.sync()
        file.close()
    storage.sync_folder()
    journal = open_journal(storage)
    assert (journal.log.term, journal.log.voted_for) == (2, "beta")
    assert journal.log.read(2) == b"\x10hello"
    assert journal.snapshot is not None
    assert journal.snapshot.index == 2
    journal.close()


def test_the_fixtures_are_all_of_the_files() -> None:
    found = {path.name for path in Path(FIXTURES, RELEASE).iterdir()}
    written = {"stories", "commands", "members", "handshake", "clients", "snapshot"}
    assert found == written | {SEGMENT, SNAPSHOT, KEPT, "synced"}
