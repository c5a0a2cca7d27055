"""The same log gives the same bytes: under other hash seeds, in other processes, on a replica.

And the rules of purity that a program can check, over the syntax tree: no clock, no randomness, no
float arithmetic, no iteration over sets.
"""

import ast
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fifo.machine import Machine, commands
from tests.machine import interpreters
from tests.machine.test_fuzz import Fuzz

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "fifo" / "machine").rglob("*.py"))
NOT_APPLIED = {"invariants.py"}  # only tests run it: sets are fine there

SCRIPT = """
from tests.machine.test_fuzz import Fuzz
fuzz = Fuzz(11)
fuzz.bench.check = False
fuzz.run(200)
print(fuzz.bench.machine.digest().hex())
"""


def digest_under(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.process
def test_the_same_log_under_two_hash_seeds_gives_the_same_digest() -> None:
    first = digest_under("1")
    assert len(first) == 64
    assert first == digest_under("4242")


LOG = """
import hashlib, pickle
from fifo.machine import Machine, Meta, commands
machine = Machine()
outcomes = hashlib.blake2b(digest_size=32)
for index, stamp_ms, wall_ms, area, batch in pickle.load(open(LOG_PATH, "rb")):
    meta = Meta(index, stamp_ms, wall_ms, memoryview(area))
    outcome = machine.apply_batch(meta, [commands.from_list(plain) for plain in batch])
    outcomes.update(repr(outcome).encode())
print(machine.digest().hex(), outcomes.hexdigest())
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random log in a file, as plain values."""
    fuzz = Fuzz(14)
    fuzz.run(250)
    plain = [
        (*meta[:3], bytes(meta.area), [commands.to_list(command) for command in batch])
        for meta, batch in fuzz.bench.log
    ]
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(pickle.dumps(plain))
    return path


def digests(interpreter: Path, log: Path, folder: Path, seed: str) -> str:
    """The digest of the state and of all outcomes of the log, under this interpreter."""
    script = LOG.replace("LOG_PATH", repr(str(log)))
    return interpreters.run(interpreter, script, folder, seed)


@pytest.mark.process
@pytest.mark.parametrize("minor", [m for m in interpreters.MINORS if m != sys.version_info[1]])
def test_the_same_log_under_another_python_gives_the_same_bytes(
    minor: int, log: Path, tmp_path: Path
) -> None:
    other = interpreters.interpreter(minor)
    if other is None:
        pytest.skip(f"no python3.{minor} on PATH, in pyenv or in uv's folder")
    folder = interpreters.lend(tmp_path)
    ours = digests(Path(sys.executable), log, folder, "7")
    assert len(ours) == 129
    assert digests(other, log, folder, "8") == ours


def test_a_replica_that_applies_the_log_has_the_same_outcomes_and_bytes() -> None:
    fuzz = Fuzz(12)
    fuzz.run(100)
    replica = Machine()
    for meta, batch in fuzz.bench.log:
        replica.apply_batch(meta, batch)
    assert replica.snapshot() == fuzz.bench.machine.snapshot()
    assert replica.digest() == fuzz.bench.machine.digest()


def test_queries_change_nothing() -> None:
    fuzz = Fuzz(13)
    fuzz.run(80)
    machine = fuzz.bench.machine
    before = machine.snapshot()
    for name in machine.queues():
        machine.queue_overview(name)
        machine.consumers_of(name)
        machine.locks_of(name, 5)
        machine.delayed_of(name, 5)
        machine.peek(name, 5)
        machine.redrive_of(name)
        machine.redrive_candidates(name, 5)
    for _, consumer in machine.lock_consumers():
        machine.expired(consumer, machine.cluster_time_ms + 60_000)
        machine.first_deadline_ms(consumer)
        machine.held(consumer, [(1, 100)])
    for session in list(machine.state.sessions):
        machine.session_view(session)
    machine.next_due_ms()
    repr(machine)
    assert machine.snapshot() == before


BANNED_CALLS = {"set", "frozenset", "float", "id", "hash", "open", "print"}
BANNED = {"time", "random", "os", "asyncio", "logging", "uuid", "threading", "locale", "secrets"}


def impurities(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in BANNED:
                    yield f"imports {name.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in BANNED:
            yield f"imports from {node.module}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield "a float"
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
            yield "a true division"
        elif isinstance(node, (ast.Set, ast.SetComp)):
            yield "a set"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in BANNED_CALLS:
            yield "calls something impure"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_machine_is_pure(path: Path) -> None:
    if path.name in NOT_APPLIED:
        return
    found = [f"{what} in {path.name}" for what in impurities(ast.parse(path.read_text()))]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "x = 1.5",
        "x = a / b",
        "x /= 2",
        "x = {1, 2}",
        "x = {a for a in b}",
        "x = set()",
        "x = hash(y)",
    ],
)
def test_the_rule_of_purity_finds_what_it_forbids(source: str) -> None:
    assert list(impurities(ast.parse(source)))
