"""Configurations of a cluster, and the steps by which one becomes another.

Owns the form of a configuration in the log, what a wish to change it has to meet, and which single
step a leader takes next. All of it is a function of its arguments: any leader, after any crash,
reads the newest configuration of its log and goes on from there. One step adds or takes away one
voter at most, so that a majority before it and one after it share a member. Must not know the
library, terms, connections or files, nor when a step may be appended: that is for the leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgpack

from node.peers.message import CONFIGURATION_BYTE
from node.raft import limits
from node.raft.errors import RaftError

if TYPE_CHECKING:
    from collections.abc import Collection

FORM: Final = 1
"""Form of a configuration in an entry and in a snapshot's header, its first field."""


class ChangeRefused(RaftError):
    """A change of the members that cannot begin; the message says why, and nothing has changed."""


class ConfigurationDamaged(RaftError):
    """Bytes that no node wrote as a configuration."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member: `address` is that of its peer port, `client` and `http` what clients connect to,
    `journal` the id of the only journal that counts for it (empty: none was seen yet)."""

    name: str
    address: tuple[str, int]
    client: str
    http: str
    journal: bytes


@dataclass(frozen=True, slots=True)
class Removed:
    """The tombstone of a member: it knows the secret for ever, so its journal is refused by id."""

    name: str
    journal: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an entry in the log, which no other entry has: a change goes by that of its
    first configuration."""

    term: int
    index: int


NO_PLACE: Final = Place(0, 0)


class Ended(NamedTuple):
    """A change that has ended: by its place, and whether it came to its end (`done`) or was given
    up."""

    place: Place
    done: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """See the module. `number` counts configurations from 1. `wanted` are the names of the voters
    in which the change under way ends, sorted; empty where none is under way. `learners` get
    entries and snapshots, and neither vote nor count. `change` is the place of the change under
    way, and `ended` are the newest that have ended, the oldest first: one who asked for a change
    finds out what became of it, whatever came after it."""

    number: int
    voters: tuple[Member, ...]
    learners: tuple[Member, ...] = ()
    removed: tuple[Removed, ...] = ()
    wanted: tuple[str, ...] = ()
    change: Place = NO_PLACE
    ended: tuple[Ended, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        """Voters and learners: all that a node has to have a connection with."""
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        """Voters that decide."""
        return len(self.voters) // 2 + 1

    @property
    def place(self) -> Place:
        """The place of the newest change, under way or ended."""
        return self.change if self.wanted or not self.ended else self.ended[-1].place

    def member(self, name: str) -> Member | None:
        """The voter or learner of that name."""
        return next((member for member in self.members if member.name == name), None)

    def counts(self, name: str, journal: bytes) -> bool:
        """Whether this journal votes and counts for the member of that name."""
        return bool(journal) and any(
            voter.name == name and voter.journal == journal for voter in self.voters
        )

    def was_removed(self, journal: bytes) -> bool:
        """Whether this journal is that of a removed member."""
        return bool(journal) and any(gone.journal == journal for gone in self.removed)


@dataclass(frozen=True, slots=True)
class Change:
    """A wish: the members to add and the names to remove; both replace one by another."""

    add: tuple[Member, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandOver:
    """The step before a leader's own removal: `names` are the voters that may lead next."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """No step can be taken before these are level with the leader."""

    names: tuple[str, ...]


Step: TypeAlias = Configuration | HandOver | Waits


def begin(current: Configuration, change: Change, recovering: Collection[str]) -> Configuration:
    """Return the configuration that begins a change: it has the learners, and what is wanted.

    `recovering`: names of members that have lost their journal and do not count yet.
    Raises `ChangeRefused`.
    """
    if not change.add and not change.remove:
        raise ChangeRefused("the change names no member; name one to add or to remove")
    _refuse_in_between(current, set(recovering) - set(change.remove))
    names = {voter.name for voter in current.voters}
    added = {member.name for member in change.add}
    for name in change.remove:
        if name not in names:
            raise ChangeRefused(f"{name!r} is no member; there are: {', '.join(sorted(names))}")
    _refuse_doubles(current, change)
    wanted = tuple(sorted((names - set(change.remove)) | added))
    if not wanted:
        raise ChangeRefused("no member would be left; keep one, or stop the cluster instead")
    if len(wanted) > limits.VOTERS_MAX:
        raise ChangeRefused(
            f"there would be {len(wanted)} members, at most {limits.VOTERS_MAX} are allowed; "
            "remove others with the same change"
        )
    return replace(current, number=current.number + 1, learners=change.add, wanted=wanted)


def _refuse_in_between(current: Configuration, recovering: Collection[str]) -> None:
    """Raise `ChangeRefused` where this is not the time for a change."""
    if current.wanted:
        raise ChangeRefused(
            f"a change to {', '.join(current.wanted)} is under way; wait for its end, or undo it"
        )
    if recovering:
        raise ChangeRefused(
            f"{', '.join(sorted(recovering))} is recovering a lost journal: wait until it has "
            "finished, or remove it"
        )


def _refuse_doubles(current: Configuration, change: Change) -> None:
    """Raise `ChangeRefused` where a new member would take a name, address or journal of another's.

    That of a member removed by the same change is taken too: it may still run.
    """
    names = {member.name for member in current.members}
    addresses = {member.address: member.name for member in current.members}
    journals = {member.journal: member.name for member in current.members}
    for new in change.add:
        if new.name in names:
            raise ChangeRefused(f"{new.name!r} is a member already; choose another name")
        if new.address in addresses:
            raise ChangeRefused(
                f"the address {new.address[0]}:{new.address[1]} of {new.name!r} is that of "
                f"{addresses[new.address]!r}; give it one of its own"
            )
        if not new.journal:
            raise ChangeRefused(f"{new.name!r} has said no journal id; is it waiting to join?")
        if current.was_removed(new.journal):
            raise ChangeRefused(
                f"the journal {new.journal.hex()} of {new.name!r} was removed from this cluster; "
                "begin with an empty folder"
            )
        if new.journal in journals:
            raise ChangeRefused(
                f"the journal {new.journal.hex()} of {new.name!r} is that of "
                f"{journals[new.journal]!r}; begin with an empty folder"
            )
        names.add(new.name)
        addresses[new.address] = journals[new.journal] = new.name


def next_step(
    current: Configuration, leader: str, level: Collection[str], up: Collection[str]
) -> Step | None:
    """Return what the leader does next for the change under way; None where it does nothing more.

    `level`: names of the learners that have what the leader has; `up`: of the voters that keep up
    with it. Every new one is level before the first is promoted: one that died between the two
    would stop a group of two. A dead one goes before another comes, so that one of three makes no
    four; one that is up goes after another has come, so that a majority never waits for one that is
    down and stays. The last voter goes after its successor has come, and a leader only as a
    follower. No step is taken behind which no majority would be up.
    """
    if not current.wanted:
        return None
    behind = tuple(each.name for each in current.learners if each.name not in level)
    if behind:
        return Waits(behind)
    step = _next_of_level(current, leader, up)
    if isinstance(step, Configuration) and step.voters != current.voters:
        there = {leader, *up, *(one.name for one in current.learners)}
        away = tuple(one.name for one in step.voters if one.name not in there)
        if len(step.voters) - len(away) < step.majority:
            return Waits(away)
    return step


def _next_of_level(current: Configuration, leader: str, up: Collection[str]) -> Step:
    """Return the next step where all learners are level."""
    going = [voter.name for voter in current.voters if voter.name not in current.wanted]
    others_going = [name for name in going if name != leader]
    dead = [name for name in others_going if name not in up]
    if dead:
        return _without(current, dead[0])
    if current.learners and len(current.voters) <= len(current.wanted):
        return _promoted(current)
    if others_going:
        return _without(current, others_going[0])
    if going:
        staying = (voter.name for voter in current.voters if voter.name in current.wanted)
        return HandOver(tuple(staying))
    return _promoted(current) if current.learners else _ended(current)


def undone(current: Configuration) -> Configuration:
    """Return the configuration that gives a change up: voters stay as they are by now, and learners
    are removed. Raises `ChangeRefused` where no change is under way."""
    if not current.wanted:
        raise ChangeRefused("no change of the members is under way; there is nothing to undo")
    gone = tuple(Removed(each.name, each.journal) for each in current.learners)
    given_up = _ended(current, done=False)
    return replace(given_up, learners=(), removed=current.removed + gone)


def placed(first: Configuration, place: Place) -> Configuration:
    """Return the first configuration of a change with the place of its entry. A change without
    steps, as a move, has ended with it."""
    if first.wanted:
        return replace(first, change=place)
    return replace(first, ended=_kept(first, Ended(place, done=True)))


def moved(
    current: Configuration,
    name: str,
    address: tuple[str, int],
    client: str,
    http: str,
    recovering: Collection[str],
) -> Configuration:
    """Return the configuration in which a voter has other addresses. Raises `ChangeRefused`."""
    _refuse_in_between(current, recovering)
    if all(voter.name != name for voter in current.voters):
        known = ", ".join(sorted(voter.name for voter in current.voters))
        raise ChangeRefused(f"{name!r} is no member; there are: {known}")
    for other in current.members:
        if other.name != name and other.address == address:
            raise ChangeRefused(
                f"the address {address[0]}:{address[1]} is that of {other.name!r}; give another"
            )
    voters = tuple(
        replace(voter, address=address, client=client, http=http) if voter.name == name else voter
        for voter in current.voters
    )
    return replace(current, number=current.number + 1, voters=voters)


def _without(current: Configuration, name: str) -> Configuration:
    gone = next(voter for voter in current.voters if voter.name == name)
    return replace(
        current,
        number=current.number + 1,
        voters=tuple(voter for voter in current.voters if voter is not gone),
        removed=(*current.removed, Removed(gone.name, gone.journal)),
    )


def _promoted(current: Configuration) -> Configuration:
    first, *others = current.learners
    return replace(
        current,
        number=current.number + 1,
        voters=(*current.voters, first),
        learners=tuple(others),
    )


def _ended(current: Configuration, *, done: bool = True) -> Configuration:
    return replace(
        current,
        number=current.number + 1,
        wanted=(),
        change=NO_PLACE,
        ended=_kept(current, Ended(current.change, done)),
    )


def _kept(current: Configuration, last: Ended) -> tuple[Ended, ...]:
    return (*current.ended, last)[-limits.CHANGES_KEPT :]


# --- in the log ---


def encode(configuration: Configuration) -> bytes:
    """Return the entry of a configuration, with its type byte."""
    fields: list[object] = [
        FORM,
        configuration.number,
        [_fields(member) for member in configuration.voters],
        [_fields(member) for member in configuration.learners],
        [[gone.name, gone.journal] for gone in configuration.removed],
        list(configuration.wanted),
        _place_fields(configuration.change),
        [[*_place_fields(one.place), one.done] for one in configuration.ended],
    ]
    return CONFIGURATION_BYTE + bytes(msgpack.packb(fields))


def decode(entry: bytes) -> Configuration:
    """Return the configuration of an entry. Raises `ConfigurationDamaged`."""
    try:
        if entry[:1] != CONFIGURATION_BYTE:
            raise ValueError(f"it begins with {entry[:1]!r}")
        form, number, voters, learners, removed, wanted, *ends = msgpack.unpackb(entry[1:])
        if form != FORM:
            raise ValueError(f"it is of form {form!r}, this release reads {FORM}")
        if type(number) is not int or number < 1:
            raise ValueError(f"its number is {number!r}")
        found = Configuration(
            number,
            tuple(map(_member, voters)),
            tuple(map(_member, learners)),
            tuple(map(_removed, removed)),
            tuple(map(_name, wanted)),
            *_ends(*ends),
        )
        if encode(found) != entry:
            raise ValueError("it is not in the form that a node writes")
    except (ValueError, TypeError, msgpack.UnpackException) as problem:
        raise ConfigurationDamaged(f"raft: no configuration: {problem}") from None
    return found


def _fields(member: Member) -> list[str | int | bytes]:
    return [member.name, *member.address, member.client, member.http, member.journal]


def _place_fields(place: Place) -> list[int]:
    return [place.term, place.index]


def _member(fields: list[str | int | bytes]) -> Member:
    name, host, port, client, http, journal = fields
    if not (
        isinstance(name, str)
        and isinstance(host, str)
        and type(port) is int
        and isinstance(client, str)
        and isinstance(http, str)
        and isinstance(journal, bytes)
    ):
        raise TypeError(f"a member is {fields!r}")
    return Member(name, (host, port), client, http, journal)


def _removed(fields: list[str | bytes]) -> Removed:
    name, journal = fields
    if not (isinstance(name, str) and isinstance(journal, bytes)):
        raise TypeError(f"a removed member is {fields!r}")
    return Removed(name, journal)


def _ends(change: list[int], ended: list[list[int | bool]]) -> tuple[Place, tuple[Ended, ...]]:
    return _place(*change), tuple(Ended(_place(*place), _flag(done)) for *place, done in ended)


def _place(*fields: int | bool) -> Place:
    term, index = fields
    if type(term) is not int or type(index) is not int or min(term, index) < 0:
        raise TypeError(f"the place of a change is {fields!r}")
    return Place(term, index)


def _flag(value: int | bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"whether a change was done is {value!r}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is {value!r}")
    return value
