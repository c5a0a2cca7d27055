"""The way of a node that is no member by its file: it asks a member who the members are.

Owns the question, asked until there is an answer, and the configuration that follows from it; what
the node has learned before is in its notebook, so that it needs no answer twice. Whether it becomes
a member is for an operator (`fifo member add`) and for the log. Must not know terms or queues.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from node.broker.members import nodes_of, remembered
from node.journal import notebook
from node.journal.recovery.open import holds_nothing
from node.peers.asking import Unanswered, ask
from node.raft import ConfigurationDamaged, decode
from node.roster import Roster
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import ClusterConfig, NodeConfig
    from node.raft import Configuration, Storage, TcpTransport

logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 1.0
"""Pause between two rounds of questions: a member that starts is found soon, and asks little."""


class Joining:
    """The questions of one node that joins."""

    def __init__(self, config: ClusterConfig, me: NodeConfig, port: TcpTransport) -> None:
        """`port` asks with the identity of this node; it need not listen."""
        self._config = config
        self._me = me
        self._port = port
        self._said = ""

    async def found(self, storage: Storage) -> ClusterConfig:
        """The configuration with all members, once it is known: by the notebook in `storage`, or by
        a member. Raises ConfigError where the folder is empty and another node has the name of
        this one."""
        known = remembered(notebook.read(storage))
        if known is None:
            known = await self._asked()
            if _is_empty(storage):
                self._check_name(known)
            # Else the folder has the journal that it joined with, and the members judge that.
        others = (node for node in nodes_of(known, Roster(())) if node.name != self._me.name)
        return replace(self._config, nodes=(self._me, *others), join=())

    async def _asked(self) -> Configuration:
        """The answer to the question, asked until there is one."""
        while True:
            known = await self._ask_all()
            if known is not None:
                return known
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _ask_all(self) -> Configuration | None:
        """Ask at each address in turn; None where none answers."""
        problems = []
        for address in self._config.join:
            try:
                answer = await ask(self._port, (address.host, address.port))
                if answer.reason:
                    problems.append(f"{address}: {answer.reason}")
                    continue
                return decode(answer.configuration)
            except (Unanswered, ConfigurationDamaged) as error:
                problems.append(f"{address}: {error}")
        said = "; ".join(problems)
        if said != self._said:
            self._said = said
            logger.warning("event=joining waits_for=an answer to who the members are: %s", said)
        return None

    def _check_name(self, known: Configuration) -> None:
        """A name that is taken is found out here, before the journal is made."""
        member = known.member(self._me.name)
        if member is None:
            logger.info(
                "event=joining node=%s members=%s advice=on any machine: fifo member add %s",
                self._me.name,
                ",".join(sorted(one.name for one in known.members)),
                self._me.name,
            )
        elif member.address != (self._me.peer.host, self._me.peer.port):
            host, port = member.address
            raise ConfigError(
                f"[[node]] name: a member at {host}:{port} is named {self._me.name!r} already, and "
                f"this node is at {self._me.peer}; choose another name, or move that member by "
                "`fifo member move`"
            )


def _is_empty(storage: Storage) -> bool:
    """Whether nothing is in the folder of a node, which need not be there before its journal is."""
    try:
        return holds_nothing(storage)
    except FileNotFoundError:
        return True
