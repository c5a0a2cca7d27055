"""Any input yields only frames, bad messages or RemoteProtocolError."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifo.wire import BadMessage, Code, Decoder, Frame, RemoteProtocolError, encode
from fifo.wire.frames import PREFIX
from fifo.wire.messages import REGISTRY
from tests.wire.examples import EXAMPLES, joined
from tests.wire.test_messages import wire_values

pytestmark = pytest.mark.slow


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)
interesting: st.SearchStrategy[object] = st.sampled_from(
    [0, 1, -1, 2**32 - 1, 2**63 - 1, 2**63, "", "x" * 256, b"", [], [[1, 1]], [[2, 1]], {}, None]
)


def check(data: bytes, cuts: list[int]) -> None:
    """Feed the data in chunks; assert that each outcome is permitted and frames encode again."""
    decoder = Decoder()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        outcome = fed(decoder, data[start:end])
        if isinstance(outcome, RemoteProtocolError):
            assert outcome.code in {Code.PROTOCOL, Code.TOO_LARGE}
            return
        for frame in outcome:
            if isinstance(frame, BadMessage):
                assert frame.code in {Code.UNSUPPORTED, Code.INVALID_ARGUMENT}
            else:
                again(frame)


def fed(decoder: Decoder, data: bytes) -> list[Frame | BadMessage] | RemoteProtocolError:
    try:
        return decoder.receive_data(data)
    except RemoteProtocolError as error:
        return error


def again(frame: Frame) -> None:
    """Assert that an accepted frame can be encoded again and decodes to an equal one."""
    data = b"".join(encode(frame.message, frame.correlation, [frame.raw]))
    (second,) = Decoder().receive_data(data)
    assert isinstance(second, Frame)
    assert repr(second.message) == repr(frame.message), "by repr: NaN is not equal to itself"
    assert second.raw == frame.raw


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_random_bytes_are_decoded_or_refused(data: bytes, cuts: list[int]) -> None:
    check(data, cuts)


@settings(deadline=None)
@given(st.binary(max_size=100), st.binary(max_size=20), st.lists(st.integers(0, 150), max_size=5))
def test_random_headers_in_valid_frames_are_decoded_or_refused(
    header: bytes, raw: bytes, cuts: list[int]
) -> None:
    check(PREFIX.pack(len(header), len(raw)) + header + raw, cuts)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(EXAMPLES),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 400), max_size=3),
)
def test_valid_frames_with_changed_bytes_are_decoded_or_refused(
    example: Any, changes: list[tuple[int, int]], cuts: list[int]
) -> None:
    data = bytearray(joined(example, 3, b"raw part"))
    for at, byte in changes:
        data[at % len(data)] = byte
    check(bytes(data), cuts)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(EXAMPLES),
    st.integers(0, 20),
    st.one_of(plain_values, interesting),
    st.integers(0, 3),
)
def test_valid_frames_with_a_replaced_field_are_decoded_or_refused(
    example: Any, field: int, value: object, extra: int
) -> None:
    values = [example.TYPE, 3, *wire_values(example)]
    if len(values) > 2:
        values[2 + field % (len(values) - 2)] = value
    header = msgpack.packb(values + [value] * extra)
    check(PREFIX.pack(len(header), 0) + header, [])


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(sorted(REGISTRY)),
    st.lists(st.one_of(plain_values, interesting), max_size=14),
)
def test_any_values_under_a_known_type_are_decoded_or_refused(kind: int, values: list[Any]) -> None:
    header = msgpack.packb([kind, 1, *values])
    check(PREFIX.pack(len(header), 0) + header, [])


@settings(deadline=None)
@given(st.lists(st.sampled_from(EXAMPLES), max_size=5), st.integers(0, 2000), st.integers(1, 50))
def test_a_stream_with_lost_bytes_is_decoded_or_refused(
    examples: list[Any], at: int, lost: int
) -> None:
    data = b"".join(joined(example, 1, b"raw") for example in examples)
    start = at % (len(data) + 1)
    check(data[:start] + data[start + lost :], [])
