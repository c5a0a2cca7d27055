"""Users, once the log keeps them: created, changed, removed, and taken over from a file.

Owns the rules that hold whichever node asks (semantics.md section 15): a change names the revision
that it is of, no two users share a token or a subject, and there is always one who may operate.
Must not know secrets, nor what a permission allows.
"""

from collections.abc import Iterable

from fifo.machine import limits, user_form
from fifo.machine.commands import ImportUsers, PutUser, RemoveUser
from fifo.machine.replies import Done, Refused, Reply
from fifo.machine.state.records import Step
from fifo.machine.user_form import UserRecord
from fifo.words.codes import RefusalCode


def put(step: Step, command: PutUser) -> Reply:
    """Create a user, or replace the one of this revision."""
    state = step.state
    before = state.users.get(command.name)
    stale = _stale(command.name, before, command.revision)
    if stale is not None:
        return stale
    if before is None and len(state.users) >= limits.USERS:
        return Refused(RefusalCode.LIMIT, f"the maximum of {limits.USERS} users is reached")
    revision = state.users_revision + 1
    user = user_form.record_of(revision, command.fields)
    users = {**state.users, command.name: user}
    refused = _impossible(users)
    if refused is not None:
        return refused
    state.users, state.users_revision = users, revision
    return Done()


def remove(step: Step, command: RemoveUser) -> Reply:
    """Remove the user of this revision."""
    state = step.state
    before = state.users.get(command.name)
    if before is None:
        return Refused(RefusalCode.STALE, f"there is no user {command.name!r}")
    stale = _stale(command.name, before, command.revision)
    if stale is not None:
        return stale
    users = {name: user for name, user in state.users.items() if name != command.name}
    refused = _impossible(users)
    if refused is not None:
        return refused
    state.users, state.users_revision = users, state.users_revision + 1
    return Done()


def take_over(step: Step, command: ImportUsers) -> Reply:
    """Take over all users of a file at once, where the log keeps none yet."""
    state = step.state
    if state.users_revision:
        return Refused(RefusalCode.IN_USE, "the users are in the log already")
    users = {name: user_form.record_of(1, fields) for name, fields in command.users}
    if len(users) != len(command.users):
        return Refused(RefusalCode.INVALID, "two users have the same name")
    refused = _impossible(users)
    if refused is not None:
        return refused
    state.users, state.users_revision = users, 1
    return Done()


def _stale(name: str, before: UserRecord | None, revision: int) -> Refused | None:
    now = 0 if before is None else before.revision
    if now == revision:
        return None
    if before is None:
        return Refused(RefusalCode.STALE, f"user {name!r} was removed meanwhile")
    text = f"user {name!r} exists" if not revision else f"user {name!r} was changed meanwhile"
    return Refused(RefusalCode.STALE, f"{text} (revision {now})", {"revision": now})


def _impossible(users: dict[str, UserRecord]) -> Refused | None:
    """Why there may not be these users."""
    if not any(user.operate and user.can_connect for user in users.values()):
        text = "no user with operate = true left, who alone may change users: give one --operate"
        return Refused(RefusalCode.INVALID, text)
    everyone = users.values()
    if _repeats(token.digest for user in everyone for token in user.tokens):
        return Refused(RefusalCode.INVALID, "another user has this token")
    if _repeats(subject for user in everyone for subject in user.subjects):
        return Refused(RefusalCode.INVALID, "another user has this certificate subject")
    if sum([user.loopback for user in everyone]) > 1:
        return Refused(RefusalCode.INVALID, "another user has loopback = true: only one may")
    return None


def _repeats(values: Iterable[bytes | str]) -> bool:
    listed = list(values)
    return len(dict.fromkeys(listed)) != len(listed)
