"""A signal cancels a run wherever it is, and once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from bench.interrupts import SIGNALS, Interrupts


async def _interrupted_inside(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(10)


@pytest.fixture(autouse=True)
def in_a_terminal() -> Iterator[None]:
    """Signals as a shell leaves them: started with nohup, all of this would ignore one."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_the_run(number: signal.Signals) -> None:
    """Ctrl-C, an orderly end from outside, and a closed terminal alike."""
    interrupts = Interrupts()
    with interrupts.caught(), pytest.raises(asyncio.CancelledError):
        interrupts.run(_interrupted_inside(number))
    assert interrupts.count == 1
    assert not interrupts.hurry()


def test_a_signal_before_the_run_cancels_it_too() -> None:
    """While the folder is made, say."""
    interrupts = Interrupts()
    with interrupts.caught():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(asyncio.CancelledError):
            interrupts.run(asyncio.sleep(10))


def test_a_second_signal_hurries_and_does_not_disturb_the_end() -> None:
    """Ending under way is not interrupted."""
    interrupts = Interrupts()
    with interrupts.caught():
        with pytest.raises(asyncio.CancelledError):
            interrupts.run(_interrupted_inside(signal.SIGINT))
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.01)
    assert interrupts.hurry()


def test_handlers_are_as_before_outside() -> None:
    """The caller's Ctrl-C is the caller's."""
    before = signal.getsignal(signal.SIGINT)
    with Interrupts().caught():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """Under nohup a run outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().caught():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def _quick() -> int:
    return 7


def test_a_run_that_is_left_alone_gives_its_answer() -> None:
    """Nothing else is different."""
    interrupts = Interrupts()
    with interrupts.caught():
        assert interrupts.run(_quick()) == 7
