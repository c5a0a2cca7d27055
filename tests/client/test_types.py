"""Proves that both clients are typed alike: what mypy accepts, what it refuses, what an IDE shows.

Owns a table of lines, good and bad, that one run of mypy checks against both clients. Each bad
line carries the error that mypy must report for it.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fifo
from fifo import blocking
from fifo.client import BaseClient

# `{}` stands where an asyncio program writes `await`, `CONNECT` for the function of each client.
GOOD = """
opened = CONNECT("fifo://h:1", timeout=5, reconnect="fixed:1s", prefetch=10, nack_backoff=None)
{}client.update("q", max_length=5, ttl=None, nack_backoff="fixed:1s")
begun: fifo.RedriveView = {}client.redrive("dlq", "q", reason="expired", older_than=3600, limit=10)
count: fifo.RedriveCount = {}client.redrive("dlq", dry_run=True, source="q")
moved: int = ({}client.cancel_redrive("dlq")).moved
options: fifo.ConsumerKeywords = {"prefetch": 5, "nack_backoff": lambda failures: failures}
client.consume("q", **options)
client.on_connected = print
client.on_disconnected = print
confirm = {}client.publish("q", b"x", key="k", delay=1.5, priority=4)
confirms: fifo.Confirms = {}client.publish_many("q", [b"x"], priorities=[1], timeout=5)
one: str = confirm.id
result: fifo.SettleResult = {}client.settle("q", 1, 2, "nack", delay=5)
consumer = client.consume("q", prefetch=10, lock=30, auto_renew=False)
{}consumer.credit(5, drain=True)
consumer.on_activity = print
first: int = ({}client.durable("q", "etl", lock=30).hold(10))[0].start
last: int = ({}client.open_producer("p")).last("q")
message = ({}client.get("q", 1, wait=2))[0]
status: fifo.Status = ({}message.nack(delay=5, reason="later")).status
"""

COUNT_OR_AUTO = "expected \"int | Literal['auto']\""

BAD = {
    'CONNECT("fifo://h:1", timeot=5)': 'Unexpected keyword argument "timeot"',
    'CONNECT("fifo://h:1", prefetch="5")': COUNT_OR_AUTO,
    'CONNECT("fifo://h:1", tag="t")': 'Unexpected keyword argument "tag"',
    '{}client.update("q", max_lenght=5)': 'Unexpected keyword argument "max_lenght"',
    '{}client.update("q", ttl="1h")': 'incompatible type "str"; expected',
    '{}client.update("q", ordering="key")': 'Unexpected keyword argument "ordering"',
    '({}client.redrive("q", dry_run=True)).moved': '"RedriveCount" has no attribute "moved"',
    '({}client.redrive("q")).sources': '"RedriveView" has no attribute "sources"',
    '({}client.cancel_redrive("q"))["moved"]': 'Value of type "RedriveView" is not indexable',
    'client.consume("q", nack_backoff=5)': 'incompatible type "int"; expected',
    'client.consume("q", timeout_backoff=lambda failures: 1)': "expected",
    'client.consume("q", prefech=10)': 'Unexpected keyword argument "prefech"',
    'client.consume("q", prefetch="many")': COUNT_OR_AUTO,
    '{}client.publish("q", "text")': 'incompatible type "str"; expected "bytes"',
    '{}client.publish_many("q", [b"x"], keyz=["k"])': 'Unexpected keyword argument "keyz"',
    '{}client.publish_many("q", [b"x"], priorities=["9"])': 'incompatible type "str"',
    '{}client.redrive("q", resaon="expired")': 'No overload variant of "redrive"',
    'client.durable("q", "etl", lok=30)': 'Unexpected keyword argument "lok"',
    '{}client.settle("q", 1, 2, "nack", dely=5)': 'Unexpected keyword argument "dely"',
    '{}client.settle("q", 1, "token")': 'incompatible type "str"; expected "int"',
    '{}client.get("q", cuont=1)': 'Unexpected keyword argument "cuont"',
    "client.no_such_method()": 'has no attribute "no_such_method"',
}


FACES = [("fifo.connect", "await "), ("fifo.blocking.connect", "")]
"""Per client: what connects, and what waits."""


def program(define: str, client: str, connect: str, wait: str) -> str:
    """Write a function that uses a client: the good lines, then the bad ones."""
    lines = [filled(line, connect, wait) for line in [*GOOD.strip().splitlines(), *BAD]]
    body = "\n".join(f"    {line}" for line in lines)
    return f"{define}(client: {client}) -> None:\n{body}\n\n\n"


def filled(template: str, connect: str, wait: str) -> str:
    """A line for one of the clients."""
    return template.replace("{}", wait).replace("CONNECT", connect)


@pytest.mark.slow
@pytest.mark.timeout(300)  # the first run of mypy on a machine has no cache
def test_mypy_reports_the_same_mistakes_for_both_clients(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    source = "import fifo\nimport fifo.blocking\n\n\n"
    source += program("async def on_a_loop", "fifo.Client", *FACES[0])
    source += program("def on_a_thread", "fifo.blocking.BlockingClient", *FACES[1])
    (tmp_path / "lines.py").write_text(source)
    # Kept between runs: the client itself takes mypy seconds, these lines take it none.
    kept = pytestconfig.cache.mkdir("mypy") if pytestconfig.cache else tmp_path / "cache"
    # A process of its own: mypy changes the garbage collector of the one that it runs in.
    words = ["-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={kept}"]
    checked = subprocess.run(
        [sys.executable, *words, str(tmp_path / "lines.py")],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    report = checked.stdout
    assert not checked.stderr
    found = {int(line): text for line, text in re.findall(r"lines\.py:(\d+): error: (.*)", report)}
    wanted = {
        number: BAD[template]
        for number, line in enumerate(source.splitlines(), 1)
        for template in BAD
        if line.strip() in [filled(template, *face) for face in FACES]
    }
    assert len(wanted) == 2 * len(BAD)
    assert found.keys() == wanted.keys(), report
    unlike = {text: wanted[line] for line, text in found.items() if wanted[line] not in text}
    assert not unlike


TWINS = [
    (BaseClient, blocking.BlockingClient),
    (fifo.Message, blocking.BlockingMessage),
    (fifo.Consumer, blocking.BlockingConsumer),
    (fifo.Producer, blocking.BlockingProducer),
    (fifo.DurableConsumer, blocking.BlockingDurable),
]
NOT_FOR_THREADS = {
    "open",  # of the client: `connect` has done it
    "forked",  # the client's own, in a forked child
    "environment",  # of the client, for a cluster in the process, which has no thread
    "deliver",
    "activity",
    "lost",
    "removed",
    "session_ended",
    "resumed",
    "fail",  # the session's
}


def public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class, inherited ones too."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in found if not name.startswith("_")}


@pytest.mark.parametrize(("asynchronous", "twin"), TWINS)
def test_the_blocking_twin_has_every_method_with_its_parameters_and_docstring(
    asynchronous: type, twin: type
) -> None:
    methods = public_methods(twin)
    for name, method in public_methods(asynchronous).items():
        if name in NOT_FOR_THREADS and name not in methods:
            continue
        theirs = inspect.signature(methods[name]).parameters
        own = inspect.signature(method).parameters
        without = {"cancel_on_lock_lost"}  # a thread cannot be cancelled
        assert [*theirs][1:] == [one for one in [*own][1:] if one not in without], name
        assert inspect.getdoc(methods[name]), name


SET_ON_SELF = re.compile(r"\bself\.(\w+)(?:: [^=]+)? = ")


def public_names(kind: type) -> set[str]:
    """Everything public of a class: methods, properties, and the attributes that it sets."""
    found = set(dir(kind))
    for base in kind.__mro__:
        if base.__module__.startswith("fifo."):
            for method in filter(inspect.isfunction, vars(base).values()):
                found |= set(SET_ON_SELF.findall(inspect.getsource(method)))
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize(("asynchronous", "twin"), TWINS)
def test_the_blocking_twin_has_every_public_name(asynchronous: type, twin: type) -> None:
    assert public_names(asynchronous) - public_names(twin) <= NOT_FOR_THREADS
    # What a program may set, it may set on both.
    for name in public_names(asynchronous):
        theirs = getattr(asynchronous, name, None)
        if isinstance(theirs, property) and theirs.fset is not None:
            assert getattr(twin, name).fset is not None, name


def test_both_ways_to_connect_take_the_same() -> None:
    theirs, own = inspect.signature(fifo.connect), inspect.signature(blocking.connect)
    assert theirs.parameters == own.parameters
