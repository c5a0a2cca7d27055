"""Framing: any cut of the stream, limits, and hostile headers."""

import random
import struct
import tracemalloc

import msgpack
import pytest

from fifo.wire import BadMessage, Code, Decoder, Frame, RemoteProtocolError, encode, limits
from fifo.wire.frames import PREFIX
from fifo.wire.messages import Ok, Ping, Renew, Settle
from tests.wire.examples import EXAMPLES, joined, stream

MIB = limits.MIB


def with_header(header: bytes, raw: bytes = b"") -> bytes:
    return PREFIX.pack(len(header), len(raw)) + header + raw


def fed(chunks: list[bytes]) -> list[tuple[object, int, bytes]]:
    """Decode these chunks into tuples that can be compared."""
    decoder = Decoder()
    frames = [frame for chunk in chunks for frame in decoder.receive_data(chunk)]
    assert decoder.pending_bytes == 0
    assert all(isinstance(frame, Frame) for frame in frames)
    return [(f.message, f.correlation, bytes(f.raw)) for f in frames if isinstance(f, Frame)]


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    ends = [*sorted(places), len(data)]
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def refused(data: bytes, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        Decoder(frame_bytes_max).receive_data(data)
    return caught.value


def test_the_stream_of_all_examples_decodes_to_them_in_order() -> None:
    assert [message for message, _, _ in fed([stream()])] == list(EXAMPLES)


def test_a_stream_fed_one_byte_at_a_time_decodes_to_the_same_frames() -> None:
    data = stream()
    assert fed([data[at : at + 1] for at in range(len(data))]) == fed([data])


@pytest.mark.parametrize("seed", range(50))
def test_a_stream_in_random_cuts_decodes_to_the_same_frames(seed: int) -> None:
    rng = random.Random(seed)
    data = stream()
    cuts = [rng.randrange(len(data)) for _ in range(rng.randrange(1, 60))]
    assert fed(cut_at(data, cuts)) == fed([data])


def test_a_stream_cut_in_two_at_any_offset_decodes_to_the_same_frames() -> None:
    data = b"".join(joined(Ok(n), n, b"raw") for n in range(4))
    whole = fed([data])
    for at in range(len(data) + 1):
        assert fed([data[:at], data[at:]]) == whole


def test_an_empty_read_changes_nothing() -> None:
    data = joined(Ping(), 1)
    assert fed([b"", data[:5], b"", data[5:], b""]) == [(Ping(), 1, b"")]


def test_a_broken_stream_yields_its_valid_frames_and_the_same_error_in_any_cut() -> None:
    data = joined(Ping(), 1) + joined(Ping(), 2) + with_header(b"\xc1") + joined(Ping(), 3)
    decoder = Decoder()
    frames: list[Frame | BadMessage] = []

    def feed_bytes() -> None:
        for at in range(len(data)):
            frames.extend(decoder.receive_data(data[at : at + 1]))

    with pytest.raises(RemoteProtocolError) as caught:
        feed_bytes()
    assert frames == [Frame(Ping(), 1), Frame(Ping(), 2)]
    whole = refused(data)
    assert (caught.value.code, caught.value.text) == (whole.code, whole.text)


def test_a_large_frame_is_assembled_from_small_reads() -> None:
    raw = bytes(range(256)) * 4096
    data = joined(Ok(None), 1, raw)
    assert fed([data[at : at + 1000] for at in range(0, len(data), 1000)]) == [(Ok(None), 1, raw)]


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    head = msgpack.packb([6, 1])
    room = limits.FRAME_BYTES_MAX - PREFIX.size - len(head)
    (frame,) = Decoder().receive_data(with_header(head, bytes(room)))
    assert len(frame.raw) == room if isinstance(frame, Frame) else False
    assert refused(PREFIX.pack(len(head), room + 1)).code is Code.TOO_LARGE


def test_the_largest_header_passes_and_one_byte_more_does_not() -> None:
    text = "x" * (limits.HEADER_BYTES_MAX - len(msgpack.packb([10, 1, "x" * 65_536])) + 65_536)
    head = msgpack.packb([10, 1, text])
    assert len(head) == limits.HEADER_BYTES_MAX
    assert Decoder().receive_data(with_header(head)) == [Frame(Ok(text), 1)]
    assert refused(PREFIX.pack(len(head) + 1, 0)).code is Code.TOO_LARGE


def test_a_frame_without_a_header_breaks_the_stream() -> None:
    assert refused(PREFIX.pack(0, 0)).code is Code.PROTOCOL
    assert refused(PREFIX.pack(0, 10) + bytes(10)).code is Code.PROTOCOL


def test_a_lowered_limit_counts_the_whole_frame() -> None:
    data = joined(Ok("x" * 100))
    assert Decoder(len(data)).receive_data(data)
    assert refused(data, len(data) - 1).code is Code.TOO_LARGE


@pytest.mark.parametrize(
    "prefix",
    [PREFIX.pack(2**32 - 1, 2**32 - 1), PREFIX.pack(2**32 - 1, 0), PREFIX.pack(10, 2**32 - 1)],
)
def test_a_huge_length_is_refused_at_the_prefix(prefix: bytes) -> None:
    decoder = Decoder()
    assert decoder.receive_data(prefix[:7]) == []
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.receive_data(prefix[7:])
    assert caught.value.code is Code.TOO_LARGE


def test_an_announced_length_allocates_only_for_received_bytes() -> None:
    tracemalloc.start()
    try:
        decoder = Decoder()
        assert decoder.receive_data(PREFIX.pack(MIB, 7 * MIB - 8) + b"x") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.pending_bytes == PREFIX.size + 1
    assert peak < 20_000


def nested_claims(kind: bytes, claim: int, depth: int, fill_bytes: int) -> bytes:
    return (kind + struct.pack(">I", claim)) * depth + b"\xc0" * fill_bytes


MAP_OF_TWO = b"\x93\x0a\x01\x82"

BOMBS = {
    "an array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "an array of 4 billion inside": b"\x93\x0a\x01\xdd\xff\xff\xff\xff",
    "a map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "text of 4 GiB": b"\x93\x0a\x01\xdb\xff\xff\xff\xff",
    "bytes of 4 GiB": b"\x93\x0a\x01\xc6\xff\xff\xff\xff",
    "an extension of 4 GiB": b"\x93\x0a\x01\xc9\xff\xff\xff\xff\x01",
    "a million items claimed a thousand times": nested_claims(b"\xdd", 10**6, 1000, 10**6),
    "a million pairs claimed a thousand times": nested_claims(b"\xdf", 10**6, 1000, 10**6),
    "arrays 100 000 deep": b"\x93\x0a\x01" + b"\x91" * 100_000 + b"\xc0",
    "maps 100 000 deep": b"\x93\x0a\x01" + b"\x81\xa1k" * 100_000 + b"\xc0",
    "a million empty arrays": b"\x93\x0a\x01\xdd" + struct.pack(">I", 10**6) + b"\x90" * 10**6,
    "a million empty maps": b"\x93\x0a\x01\xdd" + struct.pack(">I", 10**6) + b"\x80" * 10**6,
    "a map key that is a list": b"\x93\x0a\x01\x81\x90\x01",
    "a map key that is a map": b"\x93\x0a\x01\x81\x80\x01",
    "a key that appears twice": MAP_OF_TWO + b"\xa1k\x01\xa1k\x02",
    "a key that stands twice in disguise": MAP_OF_TWO + b"\x01\xc0\xcb\x3f\xf0" + bytes(7),
    "an extension": b"\x93\x0a\x01\xd4\x05\x00",
    "an extension that looks like a pair": b"\x93\x1d\x01\x91\xd5\x05\x00\x00",
    "a timestamp that is none": b"\x93\x0a\x01\xd7\xff" + b"\xff" * 8,
    "a timestamp of 3 bytes": b"\x93\x0a\x01\xc7\x03\xff\x00\x00\x00",
    "text that is not UTF-8": b"\x93\x0a\x01\xa1\xff",
    "text that is a surrogate": b"\x93\x0a\x01\xa3\xed\xa0\x80",
    "the byte that msgpack never uses": b"\xc1",
    "an array cut short": b"\x93\x0a\x01",
    "something after the end": b"\x92\x06\x01\x00",
    "a map instead of an array": b"\x80",
    "nil": b"\xc0",
    "an empty array": b"\x90",
    "a type without a correlation": b"\x91\x06",
    "a type that is text": b"\x92\xa1\x06\x01",
    "a type that is a bool": b"\x92\xc3\x01",
    "a correlation that is nil": b"\x92\x06\xc0",
    "a correlation that is a bool": b"\x92\x06\xc3",
    "a negative correlation": b"\x92\x06\xff",
    "a correlation above 2^63": b"\x92\x06\xcf" + b"\xff" * 8,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_header_only_breaks_the_stream(name: str) -> None:
    assert refused(with_header(BOMBS[name])).code is Code.PROTOCOL


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_memory_by_its_bytes_and_not_by_its_claimed_sizes(name: str) -> None:
    data = with_header(BOMBS[name])
    tracemalloc.start()
    try:
        refused(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * len(data) + 100_000


def test_the_claims_of_a_small_header_cost_little_at_any_depth() -> None:
    claims = b"\x93\x0a\x01" + b"\xdc\x03\xff" * 340
    data = with_header(claims)
    assert len(claims) <= limits.KIB
    tracemalloc.start()
    try:
        refused(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


@pytest.mark.slow
def test_a_header_of_as_many_arrays_as_allowed_passes() -> None:
    inner = limits.HEADER_CONTAINERS_MAX - 2
    (frame,) = Decoder().receive_data(with_header(msgpack.packb([10, 1, [[]] * inner])))
    assert frame == Frame(Ok([[]] * inner), 1)
    assert refused(with_header(msgpack.packb([10, 1, [[]] * (inner + 1)]))).code is Code.PROTOCOL


def test_an_error_text_never_repeats_the_peers_bytes() -> None:
    assert "secret" not in refused(with_header(b"\xa6secret\xc1")).text


def test_a_client_may_send_no_header_that_takes_a_node_long_to_read() -> None:
    """A map of 150 000 keys took 72 ms of a node's loop, 98 000 lists in 98 kB took 28 ms."""
    node = Decoder(requests=True)
    with pytest.raises(RemoteProtocolError) as long:
        node.receive_data(PREFIX.pack(limits.REQUEST_HEADER_BYTES_MAX + 1, 0))
    assert long.value.code is Code.TOO_LARGE
    many = msgpack.packb([10, 1, [[]] * limits.REQUEST_CONTAINERS_MAX])
    with pytest.raises(RemoteProtocolError) as nested:
        Decoder(requests=True).receive_data(with_header(many))
    assert nested.value.code is Code.PROTOCOL


@pytest.mark.slow
def test_the_longest_settlement_and_renewal_of_a_client_can_be_read() -> None:
    huge = 2**62
    lone = tuple((huge + 2 * place, huge + 2 * place) for place in range(limits.SETTLE_RANGES_MAX))
    text = "x" * limits.LETTER_TEXT_BYTES_MAX
    longest = [
        Settle(
            *(huge, 3, lone, huge, 10**9),
            reason=text,
            description=text,
            exception_type="x" * limits.TEXT_BYTES_MAX,
            exception_text=text,
            stack=text,
            automatic=True,
        ),
        Renew(tuple((huge + place, ((huge, huge),)) for place in range(limits.SETTLE_RANGES_MAX))),
    ]
    for message in longest:
        data = b"".join(encode(message, 1, header_bytes_max=limits.REQUEST_HEADER_BYTES_MAX))
        assert Decoder(requests=True).receive_data(data) == [Frame(message, 1)]
