"""Proves what programs may rely on in errors: a class per code, the builtin that fits, copies."""

from __future__ import annotations

import pytest

import fifo
from fifo.client import errors
from fifo.wire import Code


def test_every_code_of_the_protocol_has_its_error_and_unknown_ones_a_plain_one() -> None:
    plain = {code for code in Code if type(errors.from_code(code, "x")) is fifo.FifoError}
    assert plain == {Code.INTERNAL}
    error = errors.from_code("from_the_future", "words", {"a": 1})
    assert (type(error), str(error), error.code, error.detail) == (
        fifo.FifoError,
        "words",
        "from_the_future",
        {"a": 1},
    )


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (fifo.ConnectionLost, ConnectionError),
        (fifo.NotLeader, ConnectionError),
        (fifo.Timeout, TimeoutError),
        (fifo.AuthenticationFailed, PermissionError),
        (fifo.PermissionDenied, PermissionError),
        (fifo.MessageTooLarge, ValueError),
        (fifo.InvalidArgument, ValueError),
    ],
)
def test_errors_are_also_the_builtin_that_fits(
    error: type[fifo.FifoError], builtin: type[Exception]
) -> None:
    assert issubclass(error, fifo.FifoError)
    assert issubclass(error, builtin)


def test_an_error_of_many_messages_keeps_its_class() -> None:
    error = errors.with_progress(errors.from_code(Code.QUEUE_FULL, "full"), ["a"], 1)
    assert isinstance(error, fifo.QueueFull)
    assert isinstance(error, errors.PublishError)
    assert (error.confirms, error.index, str(error), error.code) == (["a"], 1, "full", "queue_full")
    assert isinstance(errors.with_progress(error, [], 0), fifo.QueueFull)
