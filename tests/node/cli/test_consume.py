"""`fifo consume` at a scripted node: what was typed is in the frame that subscribes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fifo.wire.messages import Subscribe
from fifo.words.consumer_options import BY_NAME
from fifo.words.options import Kind
from tests.client.test_control import PeerThread
from tests.client.test_options import EVERYTHING, answer_everything, assert_everything
from tests.support.one_consumer import bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from fifo.wire import Frame
    from tests.node.cli.local import Done
    from tests.support.wire_peer import Line

WITHOUT_CREDIT = "pull"
"""The one option that the command does not have: it asks for no credit, so nothing would come."""


def as_typed() -> list[str]:
    """Every option of a consumer as words of the command line."""
    words = ["--tag", "worker"]
    for name, (_, text, _) in EVERYTHING.items():
        option = name.replace("_", "-")
        if name != WITHOUT_CREDIT:
            is_flag = BY_NAME[name].kind is Kind.FLAG
            words += [f"--no-{option}"] if is_flag else [f"--{option}", text]
    return words


def test_every_option_of_a_consumer_that_is_typed_is_subscribed_with(
    cli: Callable[..., Done],
) -> None:
    with PeerThread() as thread:
        peer = thread.peer
        assert peer is not None
        came = answer_everything(peer)
        subscribe = peer.answers[Subscribe]

        def subscribe_and_deliver(line: Line, frame: Frame) -> None:
            subscribe(line, frame)
            line.deliver(11, 1, bodies(7))

        peer.answers[Subscribe] = subscribe_and_deliver
        done = cli("consume", "orders", "--url", peer.url, "--count", "7", *as_typed())
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 7
    [found] = came
    assert (found.queue, found.tag, found.pull) == ("orders", "worker", False)
    assert_everything(found, WITHOUT_CREDIT)
