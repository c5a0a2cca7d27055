"""An entry whose application raises on every member: whether it may be skipped (raft.md 1.46).

Owns the look at the log of a member that is stopped, and the rule: each member has to be known,
and none may have applied the entry. Must not know how a running member is asked, nor what follows
when the entry is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from fifo.machine.contract import from_list
from node.backup.errors import EntryRaises, SkipRefused
from node.backup.remains import applied, host_of
from node.broker import entry
from node.broker.audit import NOTE
from node.journal.skips import Skip, checksum_of
from node.raft import is_own_cause

if TYPE_CHECKING:
    from node.journal.journal import Journal

LACKS: Final = "lacks"
"""Of a member whose log ends before the entry: it cannot have applied it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry in the log of one member, which did not apply it."""

    node: str
    index: int
    term: int = 0
    checksum: int | None = None
    """None: its log ends before."""
    wall_ms: int = 0
    size: int = 0
    commands: str = ""
    error: str = ""
    skipped: bool = False
    """Whether it is skipped there already."""

    @property
    def word(self) -> str:
        """The word for it to a command on another machine."""
        return LACKS if self.checksum is None else f"{self.checksum:08x}"


def look(journal: Journal, name: str, index: int | None = None) -> Seen | None:
    """Look at entry `index` in the journal of a member that is stopped, or for the first one that
    cannot be applied; None where each of them can. Raises `SkipRefused` where the member has
    applied the entry, or can: there is nothing to skip then."""
    log, snapshot = journal.log, journal.snapshot
    last = log.last_index if index is None else min(index, log.last_index)
    if index is not None:
        kept = _skipped(journal, name, index)
        if kept is not None:
            return kept
        if snapshot is not None and snapshot.index >= index:
            raise SkipRefused(
                f"{name} has applied entry {index}: it has a snapshot of entry {snapshot.index}. "
                "Start it, and have the members that cannot apply it recover: fifo serve --recover"
            )
    try:
        applied(journal, host_of(journal), last)
    except EntryRaises as raised:
        _check_cause(name, index, raised)
        return _seen(journal, name, raised.index, raised.cause)
    if index is None:
        return None
    if log.last_index < index:
        return Seen(name, index)
    raise SkipRefused(
        f"{name} can apply entry {index}, so its effects may be known to clients. Start it, and "
        "have the members that cannot recover: fifo serve --recover"
    )


def _check_cause(name: str, index: int | None, raised: EntryRaises) -> None:
    cause = raised.cause
    if is_own_cause(cause):
        raise SkipRefused(
            f"{name}: {raised}; the cause is this machine's, not the entry's: look at its memory "
            "and its disk, and start the node again"
        ) from raised
    if isinstance(cause, entry.EntryUnreadable):
        raise SkipRefused(f"{name}: {cause}") from raised
    if index is not None and raised.index != index:
        raise SkipRefused(
            f"{name} comes to no entry {index}: {raised}, before it; look at that one first"
        ) from raised


def _skipped(journal: Journal, name: str, index: int) -> Seen | None:
    """The entry, where this member skips it already."""
    skip, log = journal.skips.get(index), journal.log
    if skip is None or not log.first_whole_index <= index <= log.last_index:
        return None
    seen = _seen(journal, name, index, None)
    return seen if seen.checksum == skip.checksum else None


def _seen(journal: Journal, name: str, index: int, cause: Exception | None) -> Seen:
    command, term = journal.log.read(index), journal.log.term_at(index)
    payload = memoryview(command)[1:]
    return Seen(
        node=name,
        index=index,
        term=term,
        checksum=checksum_of(term, command),
        wall_ms=entry.wall_of(payload),
        size=len(payload),
        commands=_named(payload),
        error="" if cause is None else f"{type(cause).__name__}: {cause}",
        skipped=cause is None,
    )


def _named(payload: memoryview) -> str:
    """The commands of an entry, by name and number."""
    try:
        plain = [one for one in entry.unpack(payload).commands if one[0] != NOTE]
        found = Counter(type(from_list(list(one))).__name__ for one in plain)
    except Exception as error:  # an entry that raises may be of any form
        return f"not readable ({type(error).__name__}: {error})"
    return ", ".join(f"{count} {name}" for name, count in found.items())


def check(
    names: Sequence[str], index: int, checksum: int, words: Mapping[str, str], lost: Sequence[str]
) -> None:
    """Raise `SkipRefused` unless every member of `names` is known, and has this very entry or none.
    `words`: what was seen of each; `lost`: those whose disk is gone for good."""
    unknown = [name for name in names if name not in words and name not in lost]
    if unknown:
        _refuse_unknown(unknown, index)
    wanted = f"{checksum:08x}"
    for name in names:
        if words.get(name, LACKS) not in (LACKS, wanted):
            raise SkipRefused(
                f"entry {index} of {name} has the checksum {words[name]}, not {wanted}: see fifo "
                "entry show"
            )
    if wanted not in words.values():
        raise SkipRefused(f"no member has an entry {index} with the checksum {wanted}")


def _refuse_unknown(unknown: Sequence[str], index: int) -> NoReturn:
    name = unknown[0]
    raise SkipRefused(
        f"nothing is known of {', '.join(unknown)}, which may have applied entry {index}: on the "
        f"machine of {name} run fifo entry show {index} --node {name}, and give here what it says, "
        f"as --seen {name}=WORD; or, where its disk is gone for good, --lost {name}"
    )


def order(journal: Journal, skip: Skip) -> None:
    """Have a member skip the entry from its next start on; returns when the disk has it. Raises
    OSError."""
    journal.skipping(skip).result()
