"""The follower's side of append-entries (raft.md 3.6; b04, b21, b25 and the commit rule).

Owns what may happen to a log because of one frame: entries that are there are skipped, the log
is cut at the first real conflict and nowhere else, and never at or below what is committed. The
commit index moves to what this frame verified, never to "the end of my log". Knows the journal,
not the library and not the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from node.journal.index import in_order
from node.peers.message import MessageRefused, known_commands
from node.raft.errors import RaftStopped

if TYPE_CHECKING:
    from node.journal.log import DurableLog
    from node.peers.message import Message


class Verdict(NamedTuple):
    """The answer to give, and how far the log is known to agree with the leader's."""

    success: bool
    next_index: int
    commit_index: int
    added: int = 0
    truncated: bool = False


def check(message: Message) -> None:
    """Refuse what the rules below cannot be asked about."""
    if "serialized" in message or "transmission" in message:
        raise MessageRefused("the library's snapshot and chunk frames are not accepted")
    previous, term = message["prevLogIdx"], message["prevLogTerm"]
    if previous is None or previous < 1:
        raise MessageRefused(f"entries after {previous}: every log begins with entry 1")
    if not message["entries"]:
        return
    commands, indexes, terms = zip(*message["entries"], strict=True)
    if not in_order(indexes, terms, previous, term) or terms[-1] > message["term"]:
        raise MessageRefused(
            f"entries {indexes[0]} to {indexes[-1]} of terms {terms[0]} to {terms[-1]} "
            f"after entry {previous} of term {term}"
        )
    if not known_commands(commands):
        raise MessageRefused(
            f"one of the entries {indexes[0]} to {indexes[-1]} has an unknown command type"
        )


def accept(log: DurableLog, message: Message, commit_index: int, applied_index: int) -> Verdict:
    """Bring the log in line with one checked frame of the current leader."""
    previous: int = message["prevLogIdx"]
    if previous < log.first_index:
        # A snapshot stands for that entry here: it is committed, and nothing of it is compared.
        return Verdict(False, commit_index + 1, commit_index)
    if previous > log.last_index or log.term_at(previous) != message["prevLogTerm"]:
        if previous <= commit_index:
            raise RaftStopped(
                f"raft: the leader's entry {previous} is of term {message['prevLogTerm']}, the "
                f"committed one here of term {log.term_at(previous)}: the logs have parted"
            )
        # Everything up to the commit index agrees with every leader: one hint is enough (b25).
        return Verdict(False, min(previous, commit_index + 1), commit_index)
    entries = message["entries"]
    skip, truncated = _skip_present(log, entries, max(commit_index, applied_index))
    log.extend(entries[skip:])
    verified = previous + len(entries)
    commit_index = max(commit_index, min(message["commit_index"], verified))
    return Verdict(True, verified + 1, commit_index, len(entries) - skip, truncated)


def _skip_present(
    log: DurableLog, entries: list[tuple[bytes, int, int]], settled_index: int
) -> tuple[int, bool]:
    """Count the entries that the log has already, and cut the log at the first that differs."""
    for offset, (_, index, term) in enumerate(entries):
        if index > log.last_index:
            return offset, False
        if log.term_at(index) == term:
            continue
        if index <= settled_index:
            raise RaftStopped(
                f"raft: the leader wants entry {index} replaced, which is committed or applied "
                f"here (up to {settled_index}): the logs have parted"
            )
        log.truncate(index - log.first_index)
        return offset, True
    return len(entries), False
