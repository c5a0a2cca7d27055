"""The index of all mutants of the project: one form, one registry beside the tests of each area.

Owns the order of the areas, no bug. A new area is one more registry in `MUTANTS`.
"""

from __future__ import annotations

from tests.client import mutants as client
from tests.client.model import mutants as promises
from tests.jepsen import mutant_plans as processes
from tests.jepsen.score import mutants as checkers
from tests.machine import mutants_of_costs as costs
from tests.machine import mutants_of_keys as keys
from tests.machine import mutants_of_messages as messages
from tests.machine.model import mutants as machine
from tests.mutants.hunting import Mutant
from tests.node import mutants as node
from tests.node import room_mutants as room
from tests.node.backup import mutants as backup
from tests.node.broker import mutants as broker
from tests.node.broker import mutants_of_digests as digests
from tests.node.broker import mutants_of_slowing as slowing
from tests.node.broker import mutants_of_tokens as tokens
from tests.node.broker import mutants_of_unreached as unreached
from tests.node.broker import mutants_of_users as users
from tests.node.cli import mutants as cli
from tests.node.http import api_mutants as http
from tests.node.http import console_mutants as console
from tests.node.raft import mutants as raft
from tests.node.raft import mutants_of_following as peers
from tests.sim import mutants as cluster
from tests.upgrade import mutants as upgrade

MUTANTS: tuple[Mutant, ...] = (
    *machine.MUTANTS,
    *costs.MUTANTS,
    *keys.MUTANTS,
    *messages.MUTANTS,
    *cluster.MUTANTS,
    *raft.MUTANTS,
    *peers.MUTANTS,
    *node.MUTANTS,
    *room.MUTANTS,
    *broker.MUTANTS,
    *users.MUTANTS,
    *tokens.MUTANTS,
    *digests.MUTANTS,
    *slowing.MUTANTS,
    *unreached.MUTANTS,
    *backup.MUTANTS,
    *http.MUTANTS,
    *console.MUTANTS,
    *cli.MUTANTS,
    *client.MUTANTS,
    *checkers.MUTANTS,
    *promises.MUTANTS,
    *processes.MUTANTS,
    *upgrade.MUTANTS,
)
