"""Raising the version of the cluster: for an operator, or where that is configured or safe.

Owns the request, and the leader's own proposals. Whether the version may be raised is decided by
`node/broker/upgrade.py`. Must not know what a version turns on.
"""

from __future__ import annotations

from collections.abc import Callable

from fifo.machine.contract import Reply, commands, to_list
from fifo.wire import Code, Frame
from fifo.wire.messages import Ok
from fifo.words import versions
from node.broker import cost, limits
from node.broker.connections.connection import Binding, Connection
from node.broker.proposals import Proposals, Waiter
from node.broker.requests.proposer import Proposer
from node.broker.upgrade import Upgrade


class Upgrading:
    """Handler of `FinishUpgrade`; `look` raises the version where no operator has to ask for it."""

    def __init__(
        self,
        upgrade: Upgrade,
        proposer: Proposer,
        proposals: Proposals,
        now: Callable[[], float],
        *,
        alone: bool,
    ) -> None:
        """`alone`: raise the version without being asked, for the operator wants that, or there is
        no older release to go back to: the log began with this leader. Where it hears a member of
        one after all, it leaves that to the operator."""
        self._upgrade = upgrade
        self._proposer = proposer
        self._proposals = proposals
        self._now = now
        self.alone = alone
        """Whether to call `look`."""
        self._look_at = 0.0
        self._in_flight = False

    def finish(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Raise the version as far as all members can, or name those that are in the way."""
        found = self._upgrade.judged()
        version = found.target.number
        if found.obstacles:
            text = f"the upgrade cannot be finished: {'; '.join(found.obstacles)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif version == self._upgrade.used:
            connection.send(Ok({"version": version, "raised": False}), frame.correlation)
        else:

            def answer(reply: Reply) -> None:
                connection.send(Ok({"version": version, "raised": True}), frame.correlation)

            command = commands.SetVersion(version)
            self._proposer.ask(connection, frame, command, answer, version=version)

    def look(self) -> None:
        """Raise the version once it can be, where that needs no operator."""
        if self._upgrade.used >= versions.NEWEST or (
            self._upgrade.knows_older and not self._upgrade.automatic
        ):
            self.alone = False
            return
        if self._in_flight:
            return
        now = self._now()
        if now < self._look_at:
            return
        self._look_at = now + limits.UPGRADE_LOOK_SECONDS
        found = self._upgrade.judged()
        if found.obstacles or found.target.number <= self._upgrade.used:
            return
        self._in_flight = True

        def ended(_: object) -> None:
            self._in_flight = False

        plain = to_list(commands.SetVersion(found.target.number))
        waiter = Waiter(ended, lost=ended)
        self._proposals.propose(
            lambda _: plain, waiter, weight=cost.COMMAND, version=found.target.number
        )
