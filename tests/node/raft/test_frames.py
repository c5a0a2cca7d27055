"""The peer wire, sans-I/O: what goes in comes out, and nothing else comes out."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.journal import limits
from node.peers import limits as peers_limits
from node.peers.frames import FORMATS, LENGTHS, Decoder, FrameInvalid, decode, encode

UINT = st.integers(0, 2**62 - 1)


def feed(decoder: Decoder, content: bytes, step: int = 10**9) -> list[dict[str, Any]]:
    """Receive `content` in pieces of at most `step` bytes."""
    messages = []
    at = 0
    while at < len(content):
        room = decoder.buffer()
        count = min(step, len(room), len(content) - at)
        room[:count] = content[at : at + count]
        at += count
        messages += list(decoder.received(count))
    return messages


def trusted() -> Decoder:
    decoder = Decoder()
    decoder.trusted = True
    return decoder


def append(count: int = 3, size: int = 10, term: int = 7, previous: int = 4) -> dict[str, Any]:
    """An append-entries message."""
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": 3,
        "prevLogIdx": previous,
        "prevLogTerm": 5,
        "round": 9,
        "entries": [
            (b"\x10" + bytes([place % 256]) * (size - 1), previous + 1 + place, 6)
            for place in range(count)
        ],
    }


def raw_frame(values: Any, raw: bytes = b"") -> bytes:
    header = msgpack.packb(values)
    return bytes(LENGTHS.pack(len(header), len(raw)) + header + raw)


SAMPLES = [
    append(),
    append(0),
    append(1, size=peers_limits.ENTRY_BYTES_MAX),
    {"type": "keepalive"},
    {"type": "next_node_idx", "term": 1, "round": 2, "next_node_idx": 3, "reset": True}
    | {"success": False, "counted": True},
    {"type": "term_ask", "number": 2**61, "above": 0},
    {"type": "term_report", "number": 1, "term": 3, "recovering": False},
    {"type": "request_vote", "term": 1, "last_log_index": 2, "last_log_term": 1}
    | {"transfer": False},
    {"type": "response_vote", "term": 1},
    {"type": "pre_vote", "term": 1, "number": 2, "last_log_index": 3, "last_log_term": 0},
    {"type": "pre_vote_answer", "term": 1, "number": 2, "granted": True},
    {"type": "timeout_now", "term": 2**62 - 1},
    {"type": "room", "term": 1, "free_bytes": 2**40, "low_bytes": 2**28}
    | {"held_bytes": 0, "high_bytes": 2**29, "sync_ms": 3},
]


@pytest.mark.parametrize("step", [1, 7, 4096, 10**9])
def test_messages_survive_any_cutting_of_the_stream(step: int) -> None:
    samples = SAMPLES if step > 7 else [s for s in SAMPLES if s != SAMPLES[2]]
    content = b"".join(b"".join(encode(message)) for message in samples * 2)
    assert feed(trusted(), content, step) == samples * 2


def test_large_payloads_are_written_uncopied_and_small_ones_end_to_end() -> None:
    message = append(size=limits.JOIN_BYTES + 1)
    buffers = encode(message)
    assert [id(buffer) for buffer in buffers[1:]] == [id(entry[0]) for entry in message["entries"]]
    message = append(size=limits.JOIN_BYTES)
    assert encode(message)[1:] == [b"".join(entry[0] for entry in message["entries"])]


def test_frames_larger_than_the_buffer_and_frames_after_them_arrive() -> None:
    large = append(3, size=peers_limits.RECEIVE_BYTES)
    content = b"".join(b"".join(encode(m)) for m in (append(), large, append(1), large, large))
    assert feed(trusted(), content, 100_000) == [append(), large, append(1), large, large]


def test_a_length_is_refused_before_anything_is_allocated_for_it() -> None:
    for lengths in (
        (peers_limits.HEADER_BYTES_MAX + 1, 0),
        (10, peers_limits.FRAME_BYTES_MAX),
        (2**32 - 1, 2**32 - 1),
    ):
        with pytest.raises(FrameInvalid):
            feed(trusted(), LENGTHS.pack(*lengths))
    with pytest.raises(FrameInvalid):
        feed(Decoder(), LENGTHS.pack(peers_limits.HANDSHAKE_BYTES_MAX, 1))


BAD_HEADERS = [
    b"\xc1",
    b"",
    b"\x91",
    b"\x90",
    msgpack.packb({"type": 16}),
    msgpack.packb([99]),
    msgpack.packb(["append_entries"]),
    msgpack.packb([True]),
    msgpack.packb([19]),
    msgpack.packb([19, 1, 2]),
    msgpack.packb([19, -1]),
    msgpack.packb([19, 2**62]),
    msgpack.packb([19, "1"]),
    msgpack.packb([19, 1.0]),
    msgpack.packb([19, True]),
    msgpack.packb([19, None]),
    msgpack.packb([21, 1, 1, 1]),
    msgpack.packb([1, 1, b"x" * 15, "a", "b", b"i" * 16, b"n" * 32]),
    msgpack.packb([1, 1, b"x" * 16, "a" * 256, "b", b"i" * 16, b"n" * 32]),
    msgpack.packb([16, 7, 3, 4, 5, 9, [6], [3]]),
    msgpack.packb([16, 7, 3, 4, 5, 9, [6, 6], [0]]),
    msgpack.packb([16, 7, 3, 4, 5, 9, 6, 0]),
    msgpack.packb([16, 7, 3, 4, 5, 9, [], [], "transmission"]),
    b"\x91" * 2000,
    b"\xdd\xff\xff\xff\xff",
    msgpack.packb([19, 1]) + b"x",
]


@pytest.mark.parametrize("header", BAD_HEADERS, ids=range(len(BAD_HEADERS)))
def test_headers_that_are_no_frame_are_refused(header: bytes) -> None:
    with pytest.raises(FrameInvalid):
        decode(header, memoryview(b""))


@pytest.mark.parametrize(
    ("terms", "sizes", "raw"),
    [
        ([6], [0], b""),
        ([6], [4], b"\x00abc"),
        ([6], [4], b"\x02abc"),
        ([6], [4], b"\x03abc"),
        ([6], [4], b"\x01abc"),
        ([4], [4], b"\x10abc"),
        ([8], [4], b"\x10abc"),
        ([6, 5], [2, 2], b"\x10a\x10b"),
        ([6], [3], b"\x10abc"),
        ([6, 6], [4], b"\x10abc"),
        ([6], [2**40], b"\x10abc"),
    ],
)
def test_entries_that_no_leader_sends_are_refused(
    terms: list[int], sizes: list[int], raw: bytes
) -> None:
    """Wrong types (pickled calls, membership, code versions), sizes and terms."""
    with pytest.raises(FrameInvalid):
        feed(trusted(), raw_frame([16, 7, 3, 4, 5, 9, terms, sizes], raw))


def test_only_entries_come_with_raw_bytes() -> None:
    with pytest.raises(FrameInvalid):
        feed(trusted(), raw_frame([19, 1], b"extra"))


def test_no_frame_exists_for_forwarding_or_for_the_librarys_chunks() -> None:
    assert not {"apply_command", "apply_command_response", "readonly", "serialized"} & set(FORMATS)
    fields = {name for _, known in FORMATS.values() for name, _ in known}
    assert not {"serialized", "transmission", "data", "command", "request_id"} & fields


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_wait_for_more(content: bytes) -> None:
    for decoder in (Decoder(), trusted()):
        try:
            for message in feed(decoder, content, 50):
                assert message["type"] in FORMATS
        except FrameInvalid:
            pass


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100), st.binary(max_size=50))
def test_random_headers_are_refused_or_mean_something(header: bytes, raw: bytes) -> None:
    with contextlib.suppress(FrameInvalid):
        assert decode(header, memoryview(raw))["type"] in FORMATS


def test_a_frame_with_any_byte_changed_is_refused_or_another_valid_frame() -> None:
    rng = random.Random(5)
    whole = b"".join(encode(append()))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= rng.randrange(1, 256)
        with contextlib.suppress(FrameInvalid):
            feed(trusted(), bytes(changed))


@given(UINT, UINT, st.booleans(), st.booleans())
def test_answers_round_trip(term: int, index: int, reset: bool, success: bool) -> None:
    message = {
        "type": "next_node_idx",
        "term": term,
        "round": index,
        "next_node_idx": index,
        "reset": reset,
        "counted": True,
        "success": success,
    }
    assert feed(trusted(), b"".join(encode(message))) == [message]
