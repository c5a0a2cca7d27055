"""The exact pysyncobj that this package was written against (raft.md 3.10).

Owns the version, the names and the parameter lists that `library.py` overrides or relies on, and
a digest of the source of each. Version and names are checked at import, for a moved seam loses
data silently; a test checks the digests too. Update with every override.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib import metadata
from typing import Any

import pysyncobj.config
import pysyncobj.journal
import pysyncobj.syncobj
import pysyncobj.transport
import pysyncobj.version

from node.raft.errors import RaftError

VERSION = "0.3.17"

PARAMETERS: dict[str, tuple[str, ...]] = {
    "__init__": (
        "self",
        "selfNode",
        "otherNodes",
        "conf",
        "consumers",
        "nodeClass",
        "transport",
        "transportClass",
    ),
    "_onTick": ("self", "timeToWait"),
    "_applyCommand": ("self", "command", "callback", "commandType"),
    "_checkCommandsToApply": ("self",),
    "_SyncObj__applyLogEntries": ("self",),
    "_SyncObj__changeCluster": ("self", "request"),
    "_SyncObj__connectedToAnyone": ("self",),
    "_SyncObj__doApplyCommand": ("self", "command"),
    "_SyncObj__generateRaftTimeout": ("self",),
    "_SyncObj__getCurrentLogIndex": ("self",),
    "_SyncObj__getCurrentLogTerm": ("self",),
    "_SyncObj__getEntries": ("self", "fromIDx", "count", "maxSizeBytes"),
    "_SyncObj__loadDumpFile": ("self", "clearJournal"),
    "_SyncObj__onBecomeLeader": ("self",),
    "_SyncObj__onLeaderChanged": ("self",),
    "_SyncObj__onMessageReceived": ("self", "node", "message"),
    "_SyncObj__onNodeConnected": ("self", "node"),
    "_SyncObj__onNodeDisconnected": ("self", "node"),
    "_SyncObj__onSetCodeVersion": ("self", "newVersion"),
    "_SyncObj__parseChangeClusterRequest": ("self", "command"),
    "_SyncObj__sendAppendEntries": ("self",),
    "_SyncObj__sendNextNodeIdx": ("self", "node", "reset", "nextNodeIdx", "success"),
    "_SyncObj__setCurrentTerm": ("self", "term", "votedForNodeId"),
    "_SyncObj__setState": ("self", "newState"),
    "_SyncObj__tryLogCompaction": ("self",),
}
"""Every method of SyncObj that is overridden, called, or relied on to call an override."""

SEAMS = (
    "PIPE_NOTIFIER_ENABLED",
    "Serializer",
    "createJournal",
    "createPoller",
    "monotonicTime",
    "pickle",
    "random",
    "time",
)
"""Module-level names of `pysyncobj.syncobj` that `seams.py` replaces or that the pin counts on."""

ATTRIBUTES = (
    "connectedNodes",
    "lastResponseTime",
    "leaderCommitIndex",
    "newAppendEntriesTime",
    "otherNodes",
    "raftCommitIndex",
    "raftCurrentTerm",
    "raftElectionDeadline",
    "raftLastApplied",
    "raftLeader",
    "raftLog",
    "raftMatchIndex",
    "raftNextIndex",
    "raftState",
    "serializer",
    "transport",
    "transferInProgress",
    "votedForNodeId",
    "votesCount",
)
"""Private attributes of an instance that we read or write."""

DIGESTS: dict[str, str] = {
    "__init__": "09df12cd7fd7d727",
    "_onTick": "cc9eb08232d005ba",
    "_applyCommand": "827f207d515b2d64",
    "_checkCommandsToApply": "a386a8079361d204",
    "_SyncObj__applyLogEntries": "073db677773b5a2d",
    "_SyncObj__changeCluster": "66b42884f9d2dbd1",
    "_SyncObj__connectedToAnyone": "acd40e9e3ac6c4cc",
    "_SyncObj__doApplyCommand": "1ea7aa506e950d0a",
    "_SyncObj__generateRaftTimeout": "92ed37d3620e781a",
    "_SyncObj__getCurrentLogIndex": "e5af22ca246686bd",
    "_SyncObj__getCurrentLogTerm": "1cb8867e6a13d397",
    "_SyncObj__getEntries": "e29c4b33293b2101",
    "_SyncObj__loadDumpFile": "ec66e83905de703b",
    "_SyncObj__onBecomeLeader": "5a3fd97bc17dc1cf",
    "_SyncObj__onLeaderChanged": "53b7685e1d897887",
    "_SyncObj__onMessageReceived": "ddfe34b6c0282179",
    "_SyncObj__onNodeConnected": "2655afb481b4c69b",
    "_SyncObj__onNodeDisconnected": "a81c0475ba2218cc",
    "_SyncObj__onSetCodeVersion": "17b050edb193c853",
    "_SyncObj__parseChangeClusterRequest": "b2d5d695b12e592f",
    "_SyncObj__sendAppendEntries": "9cb9073128c392fa",
    "_SyncObj__sendNextNodeIdx": "68aaeefc267b8896",
    "_SyncObj__setCurrentTerm": "0ad5bf456ac06bd3",
    "_SyncObj__setState": "2c1f239f7bd79b39",
    "_SyncObj__tryLogCompaction": "c2f8a0ec14cc7312",
    "Transport": "9b0212a7af6123e7",
    "Journal": "8375f2a66c8600e6",
    "SyncObjConf": "e8d5f06ea6435e2c",
}
"""SHA-256, shortened, of the source of each method of `PARAMETERS` and of the base classes."""


class PinBroken(RaftError, ImportError):
    """Another pysyncobj than the one this package overrides: nothing may run on it."""


def check_names() -> None:
    """Refuse to go on unless version, names and parameter lists are the recorded ones."""
    problems = [*_version_problems(), *_parameter_problems()]
    problems += [
        f"pysyncobj.syncobj.{name} is missing"
        for name in SEAMS
        if not hasattr(pysyncobj.syncobj, name)
    ]
    if problems:
        raise PinBroken(
            f"pysyncobj=={VERSION} is needed exactly, because its private methods are "
            f"overridden: {'; '.join(problems)}"
        )


def _version_problems() -> list[str]:
    found = {pysyncobj.version.VERSION, metadata.version("pysyncobj")}
    return [f"version {version} is installed" for version in sorted(found - {VERSION})]


def _parameter_problems() -> list[str]:
    problems = []
    for name, parameters in PARAMETERS.items():
        method = getattr(pysyncobj.syncobj.SyncObj, name, None)
        if method is None:
            problems.append(f"SyncObj.{name} is missing")
        elif tuple(inspect.signature(method).parameters) != parameters:
            problems.append(f"SyncObj.{name} has other parameters")
    return problems


def sources() -> dict[str, Any]:
    """Return what the digests are of, by name."""
    found = {name: getattr(pysyncobj.syncobj.SyncObj, name) for name in PARAMETERS}
    return found | {
        "Transport": pysyncobj.transport.Transport,
        "Journal": pysyncobj.journal.Journal,
        "SyncObjConf": pysyncobj.config.SyncObjConf,
    }


def digest(thing: Any) -> str:
    """Digest of the source text of a function or class."""
    return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()[:16]
