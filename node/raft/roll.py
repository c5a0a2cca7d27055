"""The roll: which journal each member has, and whether one that comes is that of the member.

Owns what a member says of its journal, what is known of the others, and the judgement (raft.md 5).
A journal that gave up nothing may count; one that is older than what its member promised, that is
empty, or that no member knows, may not. Pure: no clock, no files, no connections; `admission.py`
acts on it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from node.journal.passport import FORMER_MAX, Known
from node.raft import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.peers.message import Message


class State(enum.IntEnum):
    """The states of a journal, as its member says them."""

    NEW = 0
    """Empty, and perhaps in the place of one that is lost: it has no voice."""
    BEGUN = 1
    """That of a member which has promised nothing yet."""
    WHOLE = 2
    RECOVERING = 3
    """In the place of one that is lost (`rejoin.py`)."""
    COPY = 4
    """A copy of files: it has no voice."""


class Notice(enum.IntEnum):
    """The answers of a member to one that it does not count."""

    LOST = 1
    """Short of what it has promised: it has to recover."""
    BEGAN = 2
    """The cluster has begun: an empty journal stands for one that is lost."""
    ADMITTED = 3
    """Of two members the other is whole: an empty one harms nothing."""
    UNKNOWN = 4
    """Its journal is known by no member that is here."""
    TWICE = 5
    """Another process of this member is connected (`node/peers/transport.py`)."""
    JOINED = 6
    """The newest configuration has its journal, as that of a learner: it may begin."""
    REMOVED = 7
    """Its journal is that of a member that was removed, for good."""


class Standing(enum.Enum):
    """The weight of a member's word for another one."""

    COUNTED = "counted"
    SERVED = "served"
    """Brought up to date, while its word counts for nothing."""
    GUEST = "guest"
    """No member by the newest configuration here: it may know a newer one, and lead."""
    BARRED = "barred"


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a member on its own journal: its state, the term and the last index that it had
    at the open; what it knows of the others; and the open of each that counts with it now."""

    journal: bytes
    opens: int
    open_id: bytes
    state: State
    term: int
    index: int
    rows: Mapping[str, Known]
    connected: Mapping[str, bytes]

    @property
    def frame(self) -> Message:
        """The message that says it."""
        rows = [
            [name, known.journal, known.opens, known.open_id, list(known.former)]
            for name, known in self.rows.items()
            if known.journal
        ]
        return {
            "type": "journal",
            "journal": self.journal,
            "opens": self.opens,
            "open_id": self.open_id,
            "state": int(self.state),
            "term": self.term,
            "index": self.index,
            "rows": rows,
            "connected": [list(one) for one in self.connected.items()],
        }


def said_in(message: Message) -> Said:
    """Read a message. Raises ValueError for a state that is none."""
    rows = {
        name: Known(journal, opens, open_id, former=tuple(former))
        for name, journal, opens, open_id, former in message["rows"]
    }
    return Said(
        message["journal"],
        message["opens"],
        message["open_id"],
        State(message["state"]),
        message["term"],
        message["index"],
        rows,
        dict(message["connected"]),
    )


class Judgement(NamedTuple):
    """The outcome of what a member said; `known` is to be remembered of it."""

    standing: Standing
    known: Known
    verdict: Notice | None = None
    reason: str = ""


class Roll:
    """The knowledge of one member about the journals of the others."""

    def __init__(self, others: Mapping[str, Known], memory: bytes, *, count: int) -> None:
        """`memory`: what `packed` gave before; `count`: how many members the group has."""
        self.others = dict(others)
        self.count = count
        self._acknowledged: dict[str, tuple[bytes, int, int]] = {}
        if memory:
            for name, journal, term, index in msgpack.unpackb(memory):
                self._acknowledged[name] = (journal, term, index)

    def packed(self) -> bytes:
        """The highest acknowledgements, as bytes for the journal."""
        rows = [[name, *found] for name, found in sorted(self._acknowledged.items())]
        return bytes(msgpack.packb(rows)) if rows else b""

    def known(self, name: str) -> Known:
        """Knowledge of a member."""
        return self.others.get(name, NOTHING)

    def acknowledged(self, name: str, term: int, index: int) -> None:
        """A member has promised this in its journal: everything up to `index`, in this term."""
        journal = self.known(name).journal
        if not journal:
            return
        before = self._acknowledged.get(name)
        if before is None or before[0] != journal or before[1:] < (term, index):
            self._acknowledged[name] = (journal, term, index)

    def named(self, name: str, journal: bytes, *, gone: Callable[[bytes], bool]) -> bool:
        """A configuration names this journal of a member, which may be an old one: what was seen
        since is not overruled by it, unless that journal is `gone`, of a member removed. True where
        it is news."""
        known = self.known(name)
        if not journal or journal == known.journal or journal in known.former:
            return False
        if known.open_id and not gone(known.journal):
            return False
        self.others[name] = Known(journal, former=known.former)
        return True

    def first_seen(self, said: Said) -> Known:
        """Knowledge of a member of a cluster that begins: its own words."""
        return Known(said.journal, said.opens, said.open_id)

    def judge(self, name: str, said: Said, own: State) -> Judgement:
        """Decide what a member is that says this of itself; `own`: what this one says."""
        known = self.known(name)
        if said.state is State.RECOVERING:
            return Judgement(Standing.SERVED, replace(known, next=said.journal))
        if own not in (State.BEGUN, State.WHOLE):
            # A member without a voice judges no other: it only takes down what it hears first, and
            # the newest process, for what that acknowledges from now on is more than it said.
            newest = not known.journal or (
                said.journal == known.journal and said.opens > known.opens
            )
            heard = newest and said.state in (State.BEGUN, State.WHOLE)
            return Judgement(Standing.COUNTED, _seen(known, said) if heard else known)
        if said.state is State.NEW:
            return self._judge_empty(known, said, own)
        if said.state is State.COPY:
            reason = "its folder is a copy of another one"
            return Judgement(Standing.BARRED, known, Notice.LOST, reason)
        return self._judge_member(name, known, said, own)

    def _judge_empty(self, known: Known, said: Said, own: State) -> Judgement:
        if own is State.BEGUN:
            return Judgement(Standing.SERVED, known)  # It will begin too.
        if self.count < limits.RECOVER_MEMBERS_MIN:
            return Judgement(
                Standing.SERVED, _seen(known, said), Notice.ADMITTED, "the other member is whole"
            )
        reason = "its folder is empty, and the cluster has begun"
        return Judgement(Standing.SERVED, known, Notice.BEGAN, reason)

    def _judge_member(self, name: str, known: Known, said: Said, own: State) -> Judgement:
        if said.journal in known.former:
            reason = "its journal is one that it has lost or given up before"
            return Judgement(Standing.BARRED, known, Notice.LOST, reason)
        if said.journal == known.journal:
            reason = self._what_it_lacks(name, known, said)
            if reason:
                return Judgement(Standing.BARRED, known, Notice.LOST, reason)
            return Judgement(Standing.COUNTED, _seen(known, said))
        unspoken = own is State.BEGUN and said.state is State.BEGUN
        if not known.journal or said.journal == known.next or unspoken:
            return Judgement(Standing.COUNTED, _seen(known, said))
        reason = f"its journal {said.journal.hex()[:8]} is not {known.journal.hex()[:8]}"
        return Judgement(Standing.BARRED, known, Notice.UNKNOWN, reason)

    def _what_it_lacks(self, name: str, known: Known, said: Said) -> str:
        """Evidence that a journal is older than its member was; empty where nothing does."""
        if said.open_id == known.open_id:
            return ""  # The process that was known before.
        if said.opens < known.opens:
            return f"it was opened {said.opens} times, and {known.opens} times before"
        if said.opens == known.opens:
            return f"it was opened {said.opens} times, and another process of it as often"
        journal, term, index = self._acknowledged.get(name, (b"", 0, 0))
        if journal == said.journal and (said.term, said.index) < (term, index):
            return (
                f"it ends with entry {said.index} in term {said.term}, and has acknowledged entry "
                f"{index} in term {term}"
            )
        return ""

    def learn(self, name: str, theirs: Known, *, connected: bool) -> bool:
        """Take what another member knows of a third one, which is `connected` here or not. True
        where that is news. What a process of that member says itself is judged by `judge`."""
        mine = self.known(name)
        if not theirs.journal or theirs.journal in mine.former:
            return False
        former = _former(mine.former, theirs.former)
        # A process that this member is yet to judge by what it acknowledged stays unknown here.
        unjudged = self._acknowledged.get(name, (b"", 0, 0))[0] == theirs.journal
        newer = theirs.opens > mine.opens and not connected and not unjudged
        if not mine.journal or mine.journal in theirs.former:
            found = replace(theirs, next=mine.next, former=former)
        elif mine.journal == theirs.journal and newer:
            found = replace(mine, opens=theirs.opens, open_id=theirs.open_id, former=former)
        else:
            found = replace(mine, former=former)
        found = replace(found, former=tuple(one for one in former if one != found.journal))
        if found == mine:
            return False
        self.others[name] = found
        return True


NOTHING = Known()


def _seen(known: Known, said: Said) -> Known:
    former = known.former
    if known.journal and known.journal != said.journal:
        former = _former(former, (known.journal,))
    return Known(said.journal, said.opens, said.open_id, former=former)


def _former(mine: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    found = (*mine, *(one for one in theirs if one not in mine))
    return found[-FORMER_MAX:]
