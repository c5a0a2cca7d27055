"""A file of any size is cut into bodies and bounded batches."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.cli.errors import CliError
from node.cli.limits import BODY_BYTES_MAX, PUBLISH_BATCH, PUBLISH_BATCH_BYTES
from node.cli.publish import batches

FILE = Path("lines.txt")


def cut(content: bytes) -> list[list[bytes]]:
    return list(batches(io.BytesIO(content), FILE))


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b and b"\r" not in b)))
def test_every_line_becomes_one_body_in_order(lines: list[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)
    assert [body for batch in cut(content) for body in batch] == lines


def test_an_unterminated_last_line_and_crlf_lines_are_lines() -> None:
    assert cut(b"one\r\ntwo\n\nfour") == [[b"one", b"two", b"", b"four"]]
    assert cut(b"") == []


def test_a_batch_is_bounded_in_count_and_in_bytes() -> None:
    many = cut(b"x\n" * (2 * PUBLISH_BATCH + 1))
    assert [len(batch) for batch in many] == [PUBLISH_BATCH, PUBLISH_BATCH, 1]
    third = b"x" * (PUBLISH_BATCH_BYTES // 3)
    assert [len(batch) for batch in cut((third + b"\n") * 7)] == [3, 3, 1]


def test_a_line_of_the_maximum_size_passes_and_a_larger_one_is_named() -> None:
    longest = b"x" * BODY_BYTES_MAX
    assert cut(longest + b"\r\nend") == [[longest], [b"end"]]
    with pytest.raises(CliError, match=r"lines\.txt: line 2 is too large for a message"):
        cut(b"one\n" + longest + b"x\n")
