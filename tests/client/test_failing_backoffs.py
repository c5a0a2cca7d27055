"""A backoff of the program that fails: no nack is lost, and the failure is reported."""

from __future__ import annotations

from typing import Any

import pytest

import fifo
from fifo.wire.messages import VERB_NACK, Settle
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Peer


def no_delay(*_: object) -> float:
    """Choose a delay, and fail."""
    raise ZeroDivisionError("no delay")


class Unspeakable(Exception):
    """An exception of a program that has no text."""

    def __str__(self) -> str:
        raise AttributeError("no text")


@pytest.mark.parametrize("choose", [no_delay, lambda *_: -1, lambda *_: "soon"])
async def test_a_backoff_that_fails_loses_no_nack(choose: Any) -> None:
    async with Peer() as peer, consuming(peer, nack_backoff=choose) as (_, messages):
        peer.line().deliver(11, 1, bodies(4))
        one, two, three, four = await take(messages, 4)
        assert await one.nack() == fifo.SettleResult(fifo.Status.OK)
        async with two.process():
            raise RuntimeError("boom")
        async with three.process(on_error=choose):
            raise RuntimeError("boom")
        async with four.process():
            raise Unspeakable
        for token in range(1, 5):
            _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_NACK, ((token, token),))
            assert settle.delay_ms is None, "the queue's own backoff"


async def test_a_backoff_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with Peer() as peer, consuming(peer, nack_backoff=no_delay) as (_, messages):
        peer.line().deliver(11, 1, bodies(2))
        one, two = await take(messages, 2)
        await one.nack()
        async with two.process(on_error=no_delay):
            raise RuntimeError("boom")
        assert caplog.text.count("nack_backoff failed; nacked with the queue's own backoff") == 2
        assert caplog.text.count("on_error failed") == 1
        assert caplog.text.count("ZeroDivisionError: no delay") == 3
        assert "RuntimeError: boom" in caplog.text
