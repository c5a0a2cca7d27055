"""The passport of a journal: who it is, how often it was opened, and whom it knows.

Owns the file `identity`, of the form of the notebook, and the two orders that a command may leave
in a folder for its next start. A journal has a random id, made once. Each open draws another id,
raises a counter, and has both on the disk before the node promises anything. The file says also
where the folder's lock file was, so that a copy of files is recognised, and which journals the
other members have: unlike the notebook it must not be lost, so damage to it is damage to the
journal. Must not know what members tell each other, nor who is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from node.journal import notebook
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.io.place import Place
from node.journal.record_files import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from node.journal.io.storage import Storage

PASSPORT_NAME: Final = "identity"

INIT_ORDER: Final = "init"
"""A file of this name in an empty folder: the next start begins a new cluster (`fifo cluster
init`)."""

ADOPT_ORDER: Final = "adopt"
"""A file of this name in a copy of a folder: the next start takes the copy for the journal (`fifo
cluster adopt`)."""

ORDERS: Final = (INIT_ORDER, ADOPT_ORDER)

NAMES: Final = frozenset((PASSPORT_NAME, PASSPORT_NAME + TEMPORARY_SUFFIX, *ORDERS))
"""Names in a node's folder that say who its journal is."""

ID_BYTES: Final = 16
"""Of a journal's id and of an open's: two are equal by chance never."""

FORMER_MAX: Final = 64
"""Journals that a member gave up, which are remembered: one for each disk that it lost."""


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge of another member's journal: its id (empty: none is known), its opens, the id
    of the newest open, the id of the journal in which the member recovers (empty: it does not), and
    the ids of the journals that it gave up before."""

    journal: bytes = b""
    opens: int = 0
    open_id: bytes = b""
    next: bytes = b""
    former: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Passport:
    """See the module. `begun`: this journal is that of a member; until then it is an empty one
    that may stand for one which was lost. `copied`: the folder is a copy of the one it was in.
    `founders`: the members by the node's file when it began; empty where that file had none."""

    journal: bytes
    opens: int
    open_id: bytes
    begun: bool
    place: Place
    others: Mapping[str, Known] = field(default_factory=dict)
    copied: bool = False
    founders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keeper:
    """The way passports are kept: `entropy` makes ids, `stamp` names the time in names of files.
    `begins`: an empty folder is the first of its cluster; `adopts`: a copy is the journal itself;
    `members`: their names by the node's file.
    """

    entropy: Callable[[int], bytes]
    stamp: Callable[[], str]
    begins: bool = False
    adopts: bool = False
    members: tuple[str, ...] = ()


def prepare(
    storage: Storage, keeper: Keeper, names: Collection[str], *, empty: bool, recovering: bool
) -> Passport:
    """Return the passport for this open of a locked folder that holds these names; `empty`: no
    file of a journal is among them. `write` has to follow once the journal is known to be whole.
    In an empty folder it is on the disk before anything else, as one that has not begun: one that
    has, and no journal beside it, is damage.

    Raises `JournalDamaged`, and OSError.
    """
    found = read(storage)
    place = storage.place()
    if found is None:
        # Journals of 0.1.0 have no passport: they are members, whose id the others first see now.
        found = Passport(keeper.entropy(ID_BYTES), 0, b"", not empty, place)
    elif empty and found.begun and not recovering:
        raise JournalDamaged(PASSPORT_NAME, 0, "all segments are gone", REMEDY)
    founders = found.founders if found.begun and found.founders else keeper.members
    if (keeper.begins or INIT_ORDER in names) and not recovering:
        found = replace(found, begun=True)
    adopts = keeper.adopts or ADOPT_ORDER in names or empty
    copied = not place.fits(found.place) and not adopts
    opened = replace(
        found,
        opens=found.opens + 1,
        open_id=keeper.entropy(ID_BYTES),
        place=found.place if copied else place,
        copied=copied,
        founders=founders,
    )
    if empty:
        write(storage, replace(opened, begun=False))
    return opened


def end_orders(storage: Storage) -> None:
    """The orders have been followed."""
    found = [name for name in storage.listdir() if name in ORDERS]
    for name in found:
        storage.unlink(name)
    if found:
        storage.sync_folder()


def write(storage: Storage, passport: Passport) -> None:
    """Bring a passport to the disk; blocks until it is there. Raises OSError."""
    others = {
        name: {
            "journal": known.journal.hex(),
            "opens": known.opens,
            "open": known.open_id.hex(),
            "next": known.next.hex(),
            "former": [one.hex() for one in known.former],
        }
        for name, known in passport.others.items()
    }
    notes = {
        "journal": passport.journal.hex(),
        "opens": passport.opens,
        "open": passport.open_id.hex(),
        "begun": passport.begun,
        "place": list(passport.place),
        "others": others,
        "founders": list(passport.founders),
    }
    notebook.write_file(storage, PASSPORT_NAME, notes)


def read(storage: Storage) -> Passport | None:
    """Read the passport of a folder; None where there is none. Raises `JournalDamaged` and
    OSError."""
    try:
        notes = notebook.read_file(storage, PASSPORT_NAME)
        return None if notes is None else _passport(notes)
    except (ValueError, TypeError, KeyError) as problem:
        raise JournalDamaged(
            PASSPORT_NAME, 0, f"its content is not what was written ({problem})", REMEDY
        ) from None


def _passport(notes: dict[str, Any]) -> Passport:
    machine, inode, birth = notes["place"]
    return Passport(
        journal=bytes.fromhex(notes["journal"]),
        opens=int(notes["opens"]),
        open_id=bytes.fromhex(notes["open"]),
        begun=bool(notes["begun"]),
        place=Place(str(machine), str(inode), str(birth)),
        others={
            name: Known(
                bytes.fromhex(known["journal"]),
                int(known["opens"]),
                bytes.fromhex(known["open"]),
                bytes.fromhex(known["next"]),
                tuple(map(bytes.fromhex, known["former"])),
            )
            for name, known in notes["others"].items()
        },
        founders=tuple(map(str, notes.get("founders", ()))),
    )
