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

# `{}` stands where an asyncio program writes `await`.
GOOD = """
confirm = {}client.publish("q", b"x", key="k", delay=1.5, priority=4)
confirms: fifo.Confirms = {}client.publish_many("q", [b"x"], priorities=[1], timeout=5)
one: str = confirm.id
begun = {}client.redrive("dlq", "q", reason="expired", older_than=3600, limit=10)
result: fifo.SettleResult = {}client.settle("q", 1, 2, "nack", delay=5)
consumer = client.consume("q", prefetch=10, lock=30, auto_renew=False)
{}consumer.credit(5, drain=True)
first: int = ({}client.durable("q", "etl", lock=30).hold(10))[0]
last: int = ({}client.open_producer("p")).last("q")
message = ({}client.get("q", 1, wait=2))[0]
status: fifo.Status = ({}message.nack(delay=5, reason="later")).status
"""

BAD = {
    'client.consume("q", prefech=10)': 'Unexpected keyword argument "prefech"',
    'client.consume("q", prefetch="many")': 'incompatible type "str"; expected "int"',
    '{}client.publish("q", "text")': 'incompatible type "str"; expected "bytes"',
    '{}client.publish_many("q", [b"x"], keyz=["k"])': 'Unexpected keyword argument "keyz"',
    '{}client.publish_many("q", [b"x"], priorities=["9"])': 'incompatible type "str"',
    '{}client.redrive("q", resaon="expired")': 'Unexpected keyword argument "resaon"',
    'client.durable("q", "etl", lok=30)': 'Unexpected keyword argument "lok"',
    '{}client.settle("q", 1, 2, "nack", dely=5)': 'Unexpected keyword argument "dely"',
    '{}client.settle("q", 1, "token")': 'incompatible type "str"; expected "int"',
    '{}client.get("q", cuont=1)': 'Unexpected keyword argument "cuont"',
    "client.no_such_method()": 'has no attribute "no_such_method"',
}


def program(define: str, client: str, wait: str) -> str:
    """Write a function that uses a client: the good lines, then the bad ones."""
    lines = [*GOOD.strip().splitlines(), *BAD]
    body = "\n".join(f"    {line.replace('{}', wait)}" for line in lines)
    return f"{define}(client: {client}) -> None:\n{body}\n\n\n"


@pytest.mark.slow
@pytest.mark.timeout(300)  # the first run of mypy on a machine has no cache
def test_mypy_reports_the_same_mistakes_for_both_clients(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    source = "import fifo\nimport fifo.blocking\n\n\n"
    source += program("async def on_a_loop", "fifo.Client", "await ")
    source += program("def on_a_thread", "fifo.blocking.BlockingClient", "")
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
        if line.strip() in (template.replace("{}", ""), template.replace("{}", "await "))
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
