"""The checks of `fifo doctor`: what the nodes of a cluster say, judged.

Owns each check, its threshold's meaning and its advice. Pure: a function from what was seen to
findings. Must not ask a node or print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fifo
from node.certificates import Certificate
from node.cli.config_checks import of_times
from node.cli.findings import Finding, advice, error, warning
from node.cli.limits import (
    CLOCKS_APART_S,
    CONNECTIONS_FULL_SHARE,
    DESCRIPTORS_GOOD,
    LAG_ENTRIES,
    ROOM_FACTOR,
    SLOW_SYNC_MS,
)
from node.cli.observe import known_members, strangers
from node.cli.text import alarm_text, bytes_text, seconds_text, undecided_text

View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster as it was seen: each node's status, and the lists of the leader.

    `asked_s`: wall time of this machine before and after the nodes were asked. `refused`: why a
    list could not be had.
    """

    addresses: Sequence[str]
    nodes: Sequence[View]
    users: Sequence[View] = ()
    queues: Sequence[fifo.QueueView] = ()
    refused: Sequence[str] = ()
    asked_s: tuple[float, float] = (0.0, 0.0)
    has_secret: bool = False
    tls: bool = False

    @property
    def members(self) -> Mapping[str, str]:
        """Name and client address of each member, by the log; where no node knows them, the
        addresses that were asked."""
        known = known_members(self._answers)
        return known or {address: address for address in self.addresses}

    @property
    def up(self) -> list[View]:
        """The members that answered."""
        return [node for node in self._answers if node["node"] not in self.strangers]

    @property
    def strangers(self) -> Mapping[str, View]:
        """The nodes that answered and are no members, by name: removed, or not added yet."""
        return strangers(self._answers)

    @property
    def _answers(self) -> list[View]:
        return [node for node in self.nodes if node["role"] != "down"]


Check = Callable[[Seen], Iterator[Finding]]


def diagnose(seen: Seen) -> list[Finding]:
    """Everything that the checks find."""
    return [finding for check in _CHECKS for finding in check(seen)]


def _quorum(seen: Seen) -> Iterator[Finding]:
    answer = {node["node"] for node in seen.up}
    asked = dict(zip(seen.addresses, seen.nodes, strict=True))
    silent = {name: at for name, at in seen.members.items() if name not in answer}
    down = {name: asked[at] for name, at in silent.items() if at in asked}
    count = len(seen.members)
    for name, node in down.items():
        fact = f"does not answer: {node.get('error', 'no reason given')}"
        yield error("quorum", name, fact, "start it, or look into its log")
    majority, up = count // 2 + 1, len(seen.up)
    if up < majority:
        fact = f"{up} of {count} nodes answer, and {majority} are a majority: nothing is confirmed"
        yield error("quorum", "cluster", fact, "start the other nodes")
    elif up == majority and count > 1 and down:
        fact = f"{up} of {count} nodes answer: the loss of one more stops the cluster"
        yield error("quorum", "cluster", fact, "restart no node before the others are back")
    if len(down) < len(silent):
        fact = f"asked {count - len(silent) + len(down)} of {count} nodes"
        yield advice("quorum", "cluster", fact, "name all of them in --url")
    if count == 1:
        fact = "a single node: nothing is replicated, and a lost disk loses everything"
        yield advice("quorum", "cluster", fact, "run three nodes on three machines")
    elif count % 2 == 0:
        fact = f"{count} nodes tolerate no more losses than {count - 1}"
        yield advice("quorum", "cluster", fact, "run an odd number of nodes")


def _strangers(seen: Seen) -> Iterator[Finding]:
    """Nodes and addresses that the URL names and the log does not."""
    for name, node in seen.strangers.items():
        if node.get("recovering"):
            yield advice("quorum", name, "is no member yet", f"fifo member add {name}")
        else:
            yield advice("quorum", name, "is no member any more", "stop it, and remove its folder")
    members = seen.members.values()
    for address, node in zip(seen.addresses, seen.nodes, strict=True):
        if node["role"] == "down" and address not in members:
            fact = "is the address of no member, and none answers there"
            yield advice("quorum", address, fact, "leave it out of --url: fifo member list")


def _leader(seen: Seen) -> Iterator[Finding]:
    leaders = [node for node in seen.up if node["role"] == "leader"]
    if seen.up and not leaders:
        yield error("leader", "cluster", "no node leads", "check the peer ports and secrets")
    known = {str(node["leader"]) for node in seen.up if node.get("leader") is not None}
    if len(known) > 1:
        fact = f"the nodes follow different leaders: {', '.join(sorted(known))}"
        yield warning("leader", "cluster", fact, "ask again: an election may be under way")


def _log(seen: Seen) -> Iterator[Finding]:
    last = max((node.get("last", 0) for node in seen.up), default=0)
    for node in seen.up:
        if waits_for := node.get("recovering"):
            fact = f"does not count yet: it waits for {waits_for}"
            yield warning("log", node["node"], fact, "restart no other node before it is done")
        elif (lag := last - node.get("applied", 0)) > LAG_ENTRIES:
            fact = f"is {lag} entries behind: it is no help yet if another node is lost"
            yield warning("log", node["node"], fact, "look at its disk and its network")


def _states(seen: Seen) -> Iterator[Finding]:
    stopped = undecided_text(seen.up)
    if stopped is not None:
        fact, _, fix = stopped.partition(": ")
        yield error("states", "cluster", fact, fix)


def _alarms(seen: Seen) -> Iterator[Finding]:
    for node in seen.up:
        for alarm in node.get("alarms") or ():
            if alarm.get("node") in (None, node["node"]):
                fact = f"publishes are refused: {alarm_text(alarm)}"
                if alarm["alarm"] == "descriptors_low":
                    fact = alarm_text(alarm)
                yield error("alarms", node["node"], fact, "see docs/disk-trouble.md")


def _room(seen: Seen) -> Iterator[Finding]:
    for node in seen.up:
        free, low = node.get("disk_free_bytes"), node.get("disk_low_bytes")
        if free is not None and low and low <= free < ROOM_FACTOR * low:
            fact = f"{bytes_text(free)} are free; below {bytes_text(low)} publishes are refused"
            yield warning("room", node["node"], fact, "free some, or use a larger disk")


def _disks(seen: Seen) -> Iterator[Finding]:
    for node in seen.up:
        p99 = (node.get("fsync_ms") or {}).get("p99", 0.0)
        if p99 > SLOW_SYNC_MS:
            fact = f"one sync in a hundred takes {p99:.0f} ms or more: each confirm waits for it"
            yield warning("disks", node["node"], fact, "use a local disk that no other program has")


def _clocks(seen: Seen) -> Iterator[Finding]:
    """Locks do not depend on wall clocks; ends of tokens and certificates, and logs, do."""
    before, after = seen.asked_s
    for node in seen.up:
        wall_ms = node.get("wall_ms")
        if wall_ms is None:
            continue
        at = wall_ms / 1000
        apart = max(before - at, at - after, 0.0)
        if apart > CLOCKS_APART_S:
            word = "behind" if at < before else "ahead of"
            fact = f"its clock is {seconds_text(apart)} {word} this machine's"
            yield warning("clocks", node["node"], fact, "run an NTP client on both")


def _descriptors(seen: Seen) -> Iterator[Finding]:
    for node in seen.up:
        now, most = node.get("connections", 0), node.get("connections_max", 0)
        descriptors = node.get("descriptors_max", DESCRIPTORS_GOOD)
        if most and now >= CONNECTIONS_FULL_SHARE * most:
            fact = f"{now} of {most} connections are taken"
            yield warning("descriptors", node["node"], fact, "raise LimitNOFILE (ulimit -n)")
        elif 0 <= descriptors < DESCRIPTORS_GOOD:
            fact = f"may open {descriptors} descriptors, and so takes {most} connections"
            yield advice("descriptors", node["node"], fact, "set LimitNOFILE=65536 in its unit")


def _versions(seen: Seen) -> Iterator[Finding]:
    versions = {node["node"]: node.get("version") or "unknown" for node in seen.up}
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        fix = "install one release on all nodes, one by one; then: fifo upgrade finish"
        yield warning("versions", "cluster", f"the nodes have different versions: {shown}", fix)
        return
    for node in seen.up:
        view = node.get("versions")
        if view and view["finish"]["version"] > view["used"]:
            fact = (
                f"version {view['used']} is in use, and all nodes know {view['finish']['version']}"
            )
            fix = "when there is no way back to the older release: fifo upgrade finish"
            yield advice("versions", "cluster", fact, fix)
            return


def _certificates(seen: Seen) -> Iterator[Finding]:
    now_s = seen.asked_s[1]
    for node in seen.up:
        for port, ends_ms in (node.get("certificates") or {}).items():
            shown = Certificate(0.0, ends_ms / 1000, (), "")
            for found in of_times(f"{node['node']} {port} port", shown, now_s):
                yield Finding(found.severity, "certificates", found.place, found.fact, found.fix)


def _keys(seen: Seen) -> Iterator[Finding]:
    for node in seen.up:
        problem = node.get("jwt_problem")
        if problem is not None:
            fact = f"could not read the keys of the identity provider: {problem}"
            fix = "new keys are not known there; look at [jwt] and the network of the node"
            yield error("jwt", node["node"], fact, fix)


def _users(seen: Seen) -> Iterator[Finding]:
    now_ms = seen.asked_s[1] * 1000
    for user in seen.users:
        name = f"user {user['name']}"
        powers = ("declare", "publish", "consume", "manage", "monitor", "operate")
        if not any(user[power] for power in powers):
            fact = "has no permission, and can open no session"
            yield warning("users", name, fact, "grant one, or remove the user")
        ended = [one["name"] for one in user["tokens"] if (one["ends_ms"] or now_ms + 1) <= now_ms]
        if ended:
            fact = f"has tokens that have ended: {', '.join(ended)}"
            yield advice("users", name, fact, "fifo user revoke-token")
        if user["loopback"] and user["operate"]:
            fact = "every program on a node's machine may operate the cluster (loopback)"
            yield warning("users", name, fact, "give it a password or a token instead")
    if seen.users and sum(bool(user["operate"]) for user in seen.users) == 1:
        fact = "one user may operate: without its secret no one can change users"
        yield advice("users", "cluster", fact, "add a second one")
    if seen.has_secret and not seen.tls and not all(map(_is_local, seen.addresses)):
        fact = "passwords, tokens and messages travel unencrypted"
        yield warning("users", "cluster", fact, "set client_cert and client_key in [tls]")
    for reason in seen.refused:
        yield advice("access", "cluster", f"not looked at: {reason}", "ask as an operator")


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "localhost", "[::1]"))


def _queues(seen: Seen) -> Iterator[Finding]:
    letters = {queue.spec.get("dead_letter") for queue in seen.queues}
    for queue in seen.queues:
        takes_letters = queue.name in letters or queue.name.endswith(".dlq")
        if queue.ready and not queue.consumers and not takes_letters:
            fact = f"{queue.ready} messages wait, and it has no consumer"
            yield advice("queues", f"queue {queue.name}", fact, "start one, or delete the queue")
        if queue.paused:
            yield advice("queues", f"queue {queue.name}", "is paused", "fifo queue resume")
        spec = queue.spec
        endless = spec.get("max_deliveries") is None and spec.get("dead_letter") is None
        if spec and endless and not takes_letters:
            fact = "a message that always fails is handed out for ever"
            yield advice("queues", f"queue {queue.name}", fact, "give it --dead-letter QUEUE")


_CHECKS: Final[tuple[Check, ...]] = (
    _quorum, _strangers, _leader, _log, _states, _alarms, _room, _disks, _clocks, _descriptors,
    _versions, _certificates, _keys, _users, _queues,
)  # fmt: skip

CHECKS: Final[Mapping[str, str]] = {
    "quorum": "every node answers, and one more may be lost",
    "leader": "one node leads, and all know it",
    "log": "no node is behind",
    "states": "the members' states are known to be right",
    "alarms": "publishes are taken",
    "room": "disks have room",
    "disks": "syncs are quick",
    "clocks": "clocks agree",
    "descriptors": "connections fit",
    "versions": "all nodes run one version",
    "certificates": "none ends soon",
    "jwt": "the keys of the identity provider are read",
    "users": "each may do something, and one may operate",
    "queues": "none is stuck",
}
"""The checks of a cluster, with what is right where one finds nothing."""
