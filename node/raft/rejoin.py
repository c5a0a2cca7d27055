"""The way back of a member that lost its journal: what it has to learn before it has a voice.

Owns the questions for terms, what follows from the answers, and the words for people. Such a
member may have voted for, and acknowledged to, leaders that it does not remember. So it says
nothing that counts before it holds, committed, an entry of a leader that was elected without it
in a later term than any of those. Why that is enough stands in `docs/raft.md` ("A member that lost
its journal"). Pure: no clock, no files, no library; `elections.py` drives it, the marker that
keeps it going across restarts is the journal's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from node.raft import limits
from node.raft.errors import RaftError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from node.journal.journal import Journal
    from node.peers.message import Message
    from node.raft.config import RaftConfig

logger = logging.getLogger(__name__)

NUMBER_BITS: Final = 61
"""Of the number of a question: no answer to an earlier process is taken for one to this."""

GONE: Final = "where a majority is gone for good, `fifo cluster rebuild` (docs/operating.md)"

Leads = tuple[str, int]
"""The leader as last heard, and its term."""


class RecoverRefused(RaftError):
    """This member cannot recover; the message says why, and what to do instead."""


def check_members(name: str, others: Iterable[str]) -> None:
    """Raise `RecoverRefused` where no majority is left without the member that recovers."""
    found = sorted(others)
    if len(found) + 1 >= limits.RECOVER_MEMBERS_MIN:
        return
    if found:
        raise RecoverRefused(
            f"{name} cannot recover: in a group of two, {found[0]} can lead only with the vote of "
            f"{name}. {found[0]} has every acknowledged message: keep its data, move the files of "
            f"{name} away, and start {name} with an empty folder and without --recover "
            '(docs/storage.md, "Damage")'
        )
    raise RecoverRefused(
        f"{name} cannot recover: it is the only member, so no other one has its messages; keep the "
        "folder for a rescue, and go on with an exact copy made while the node was stopped, "
        'or with an empty folder, `fifo cluster init`, and no messages (docs/storage.md, "Damage")'
    )


def at_start(config: RaftConfig, journal: Journal, rng: random.Random) -> Rejoin | None:
    """Why a member that starts with this journal has no voice yet; None: it votes and counts."""
    if journal.recovering:
        return Rejoin(config.peers, rng)
    papers = journal.passport
    if papers is None or (papers.begun and not papers.copied):
        return None
    return Waiting(config.peers, rng)


class Rejoin:
    """A member that recovers, in one process; a restart begins from the questions again."""

    def __init__(self, others: Iterable[str], rng: random.Random) -> None:
        self._others = frozenset(others)
        self._rng = rng
        self._number = rng.getrandbits(NUMBER_BITS)
        self._reports: dict[str, int] = {}
        self._asked_at: dict[str, float] = {}
        self._recovering: set[str] = set()
        self._recovering_before: set[str] = set()
        self._told = ""
        self.floor: int | None = None
        """The highest term that anything forgotten can be of; None while not everybody answered."""

    def follow(self, others: Iterable[str]) -> None:
        """These are the other voters, by what has come of the log: where they are not those that
        were asked, all of it begins again."""
        found = frozenset(others)
        if found != self._others:
            self._others = found
            self.floor = None
            self._recovering_before.clear()
            self._ask_again()

    def asks(self, peer: str, leads: Leads | None, now: float) -> bool:
        """Whether to ask `peer` now: for its term, or, where it leads in no later one, to hand
        over."""
        if self.floor is None:
            wanted = peer not in self._reports
        else:
            wanted = leads is not None and leads[0] == peer and leads[1] <= self.floor
        if not wanted or now < self._asked_at.get(peer, now):
            return False
        self._asked_at[peer] = now + limits.RECOVER_ASK_SECONDS
        return True

    def question(self) -> Message:
        """The frame that asks."""
        return {"type": "term_ask", "number": self._number, "above": self.floor or 0}

    def reported(self, peer: str, message: Message) -> bool:
        """Take an answer. True when nothing is missing any more.

        A member that recovers as well does not remember its own term, but others may: they have
        to be asked after it said so, for only then its earlier process can have won no vote that
        they do not tell of.
        """
        if message["number"] != self._number or self.floor is not None:
            return False
        self._reports[peer] = message["term"]
        if message["recovering"]:
            self._recovering.add(peer)
        if not self._reports.keys() >= self._others:  # Learners report, too.
            return False
        if self._recovering <= self._recovering_before:
            self.floor = max(self._reports.values())
            return True
        self._recovering_before |= self._recovering
        self._ask_again()
        return False

    def _ask_again(self) -> None:
        self._recovering.clear()
        self._reports.clear()
        self._asked_at.clear()
        self._number = self._rng.getrandbits(NUMBER_BITS)

    def waits_for(self, leads: Leads | None) -> str:
        """Describe what has to happen next."""
        if self.floor is None:
            missing = ", ".join(sorted(self._others - self._reports.keys()))
            return f"the terms of {missing}: every other member has to report its own; {GONE}"
        without = (self._recovering | self._recovering_before) & self._others
        voters = len(self._others) - len(without)
        if leads is None and 2 * voters <= len(self._others) + 1:
            lost = ", ".join(sorted(without))
            return f"a majority with journals of their own; also without: {lost}; {GONE}"
        if leads is None or leads[1] <= self.floor:
            asked = f"; {leads[0]} was asked to hand over" if leads is not None else ""
            return f"a leader elected in a term above {self.floor}{asked}"
        return f"the log of {leads[0]}, which leads term {leads[1]}"

    def tell(self, leads: Leads | None, *, ended: bool) -> None:
        """A line for the log, where there is news."""
        if ended:
            logger.info("event=recovered advice=the files that were set aside can be removed")
            return
        waits_for = self.waits_for(leads)
        if waits_for != self._told:
            self._told = waits_for
            logger.info("event=recovering waits_for=%s", waits_for)


class Waiting(Rejoin):
    """A member whose folder is empty, or a copy: it may stand for a journal that is lost, and has
    no voice before others say what became of its cluster. It asks nothing: `admission.py` hears."""

    def __init__(self, others: Iterable[str], rng: random.Random) -> None:
        super().__init__(others, rng)
        self.why = ""

    def asks(self, peer: str, leads: Leads | None, now: float) -> bool:
        """Never."""
        return False

    def reported(self, peer: str, message: Message) -> bool:
        """Take no answer: nothing was asked."""
        return False

    def waits_for(self, leads: Leads | None) -> str:
        return self.why

    def tell(self, leads: Leads | None, *, ended: bool) -> None:
        if not ended and self.why != self._told:
            self._told = self.why
            logger.info("event=waiting waits_for=%s", self.why)

    def explain(
        self,
        *,
        said_empty: list[str],
        away: list[str],
        recovering: list[str],
        copied: bool,
        joins: bool,
    ) -> None:
        """Say what is missing, by the states of the others."""
        missing = f"; not reached: {', '.join(away)}" if away else ""
        empty = f"; empty too: {', '.join(said_empty)}" if said_empty else ""
        if recovering:
            empty += f"; without a journal of their own: {', '.join(recovering)}, and {GONE}"
        if joins and not copied:
            self.why = f"a leader that has it as a learner: `fifo member add`{missing}"
        elif copied:
            self.why = (
                "a member that has its journal: this folder is a copy of another one, and recovers "
                f"then; `fifo cluster adopt` makes it the journal itself{missing}{empty}"
            )
        else:
            self.why = (
                "a member that has its journal, or all others to be empty too: this folder is "
                f"empty; `fifo cluster init` begins a new cluster here{missing}{empty}"
            )
