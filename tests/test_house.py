"""Proves the floors of the house, who may import whom, and the rules that a program can check.

Owns two tables: FLOORS (one line per room) and RULES (one line per rule and bad example, each rule
a function from a module to what it finds wrong). Reads source only, imports nothing of the project.
A new room gets a line in FLOORS; a module in no room fails a test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support import language

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import TypeAlias

    Rule: TypeAlias = "Callable[[Module], Iterator[str]]"

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the house, for all rules

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Room:
    """Grants of one room: rooms it may import and third-party packages (stdlib is free)."""

    knows: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()


def words(text: str) -> frozenset[str]:
    """A set of names, written as words."""
    return frozenset(text.split())


def room(knows: str = "", uses: str = "") -> Room:
    """A line of the table: both lists are written as words."""
    return Room(words(knows), words(uses))


# A module belongs to the room with the longest name that it starts with. Read it upward: every room
# knows only rooms above it in this table, so nothing imports upward in the house.
FLOORS: dict[str, Room] = {
    "fifo.words": room(),  # one vocabulary for all rooms above it
    "fifo.machine": room(knows="fifo.words", uses="sortedcontainers"),
    "fifo.wire": room(knows="fifo.words", uses="msgpack"),
    "fifo.client": room(knows="fifo.words fifo.wire", uses="opentelemetry"),  # where installed
    "fifo.worker": room(knows="fifo.client fifo.words", uses="msgpack"),
    # the names that `import fifo` gives; uvloop where it is installed, never required
    "fifo": room(knows="fifo.client fifo.wire fifo.worker", uses="uvloop"),
    "fifo.spark": room(knows="fifo fifo.client fifo.words", uses="pyspark pyarrow fastavro google"),
    # Spark imports it in every session of its environment: it names the data source, and no more.
    "pyspark_fifo": room(knows="fifo.spark"),
    "fifo.celery": room(knows="fifo fifo.client fifo.words", uses="kombu amqp"),
    "fifo.dramatiq": room(knows="fifo fifo.client fifo.worker fifo.words", uses="dramatiq"),
    "fifo.taskiq": room(knows="fifo fifo.client fifo.worker", uses="taskiq"),
    "node.journal": room(uses="msgpack crc32c sortedcontainers"),
    "node.peers": room(knows="node.journal", uses="msgpack"),
    "node.raft.errors": room(knows="node.journal"),
    "node.raft.membership": room(knows="node.peers node.raft.errors"),
    "node.raft.pysyncobj": room(
        knows="node.journal node.peers node.raft.errors node.raft.membership", uses="pysyncobj"
    ),
    "node.raft": room(
        knows="node.journal node.peers node.raft.errors node.raft.membership node.raft.pysyncobj",
        uses="msgpack",
    ),
    "node": room(),  # the configuration, which all of node's rooms read
    "node.broker": room(
        knows="fifo.words fifo.machine fifo.wire node.journal node.peers node.raft node",
        uses="msgpack sortedcontainers aiohttp jwt",  # the last two: keys of an identity provider
    ),
    "node.server": room(
        knows="fifo.words fifo.machine fifo.wire node.journal node.peers node.raft node.broker"
        " node",
        uses="uvloop",
    ),
    "node.backup": room(
        knows="fifo.machine fifo.wire node.journal node.raft node.broker node", uses="msgpack"
    ),
    "node.http": room(
        knows="fifo.words fifo.machine fifo.wire fifo.client"
        " node.journal node.raft node.broker node.server node",
        uses="aiohttp prometheus_client",
    ),
    "node.testing": room(knows="node.journal node.peers node.raft node.broker node.server node"),
    # The face of node.testing: imported from fifo to node lazily, when a test makes a cluster.
    "fifo.testing": room(knows="fifo.client node.testing"),
    # pytest loads it in every project of its environment: it imports `fifo` when a test asks.
    "pytest_fifo": room(knows="fifo fifo.testing", uses="pytest pytest_asyncio"),
    "node.cli": room(
        knows="fifo fifo.words fifo.client fifo.wire fifo.worker"
        " node.journal node.raft node.broker node.backup node.server node.http node",
        uses="typer click rich",
    ),
    "node.__main__": room(knows="node.cli"),
    # The console command belongs to the client, which hands it to the server's package if that is
    # installed: the one import that points from fifo to node, made when the command runs.
    "fifo.__main__": room(knows="node.cli fifo fifo.worker"),
    "tools": room(),
    # a node that hashes its state when it is asked to
    "bench.growth.digesting": room(knows="fifo.machine node.broker node.cli"),
    "bench": room(
        # node: the machine alone is timed with the collections of garbage that a node has
        # tools: the demo unpacks a release that is kept
        knows="fifo fifo.words fifo.client fifo.machine fifo.spark fifo.wire node node.cli tools"
        " bench.growth.digesting",
        uses="pyspark pyarrow py4j matplotlib rich pika nats",
    ),
    "bench.raft": room(knows="bench node.raft", uses="rich uvloop"),
    # its driver runs in older checkouts too, which have no loop of their own
    "bench.rates": room(knows="bench fifo", uses="rich uvloop"),
    # a log is applied again by the part of a node that does so
    "bench.hashing": room(
        knows="bench bench.rates fifo.machine node node.journal node.raft node.broker node.backup",
        uses="rich",
    ),
    "bench.raft.stock": room(
        knows="bench bench.raft", uses="pysyncobj"
    ),  # what ours is held against
    "tests": room(
        knows="fifo fifo.words fifo.machine fifo.wire fifo.client fifo.worker fifo.spark"
        " node node.journal node.peers node.raft node.raft.errors node.raft.membership"
        " node.raft.pysyncobj node.broker node.backup node.server node.http node.cli"
        " node.testing fifo.testing fifo.celery fifo.dramatiq fifo.taskiq pytest_fifo pyspark_fifo"
        " node.__main__ fifo.__main__ bench bench.raft bench.rates bench.hashing tools",
        uses="pytest pytest_asyncio hypothesis _pytest aiohttp msgpack sortedcontainers pysyncobj"
        " pydantic packaging pyspark pyarrow kombu amqp celery dramatiq taskiq t pika matplotlib"
        " rich typer click crc32c xdist uvloop mypy opentelemetry msgspec PIL fastavro google"
        " deltalake jwt cryptography",
    ),
}

LARGEST_ROOM = 0.30
"""Share of node's lines that its largest room may have: more is a house within the house."""

# Rooms whose files still need each other for the types of what they call.
CIRCLES_FOR_TYPES = words("tests")

OURS = ("fifo", "pytest_fifo", "pyspark_fifo", "node", "bench", "tools", "tests")

# What the machine may take from the standard library: nothing in it reads a clock, a random number,
# an address in memory, the locale, the network or the disk.
MACHINE_STDLIB = words(
    "__future__ abc array bisect collections dataclasses enum functools hashlib heapq hmac"
    " itertools operator re struct sys typing zlib"
)
FORBIDDEN_CALLS = frozenset({"id", "hash", "float", "open", "print", "input", "exec", "eval"})

PICKLES = frozenset({"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"})

MANGLED = re.compile(r"\b_[A-Z][A-Za-z]*__[a-z]")

LINES_AT_MOST = 800


class Import(NamedTuple):
    """An imported module or name, as `a.b.c`, with the line that imports it."""

    target: str
    line: int
    at_run_time: bool


@dataclass(frozen=True)
class Module:
    """A module's dotted name, its text and its tree; what several rules ask for is found once.

    It lives while its file is judged: the trees of all files would take half a gigabyte.
    """

    name: str
    text: str
    tree: ast.Module
    is_package: bool = False

    @cached_property
    def room(self) -> str | None:
        return room_of(self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import, wherever it stands; `from a import b` gives a.b, relative ones resolved."""
        return tuple(self._imports())

    def _imports(self) -> Iterator[Import]:
        only_for_types = {
            id(inner)
            for outer in self.nodes
            if isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test)
            for statement in outer.body
            for inner in ast.walk(statement)
        }
        for node in self.nodes:
            at_run_time = id(node) not in only_for_types
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, at_run_time)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.lineno, at_run_time)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        up = node.level - 1 if self.is_package else node.level
        parts = self.name.split(".")
        return ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])


@cache
def room_of(name: str) -> str | None:
    """The longest room that the dotted name lies in; None for what others wrote."""
    fitting = [known for known in FLOORS if name == known or name.startswith(known + ".")]
    return max(fitting, key=len, default=None)


def module_of(name: str, text: str, *, is_package: bool = False) -> Module:
    """A module from its text: for the files of the house, and for the bad examples below."""
    return Module(name, text, ast.parse(text), is_package)


@dataclass(frozen=True, slots=True)
class Judged:
    """A module of the house as the tests ask for it: without its tree, but with its offences."""

    name: str
    room: str | None
    lines: int
    imports: tuple[Import, ...]
    classes: tuple[str, ...]
    offences: dict[Rule, list[str]]


@cache
def house() -> tuple[Judged, ...]:
    """Every Python file of the project, read once for all rules."""
    return tuple(map(judged, _modules()))


def judged(module: Module) -> Judged:
    """The module before every rule."""
    classes = (node.name for node in module.tree.body if isinstance(node, ast.ClassDef))
    return Judged(
        name=module.name,
        room=module.room,
        lines=module.text.count("\n"),
        imports=module.imports,
        classes=tuple(classes),
        offences={rule: list(rule(module)) for rule in dict.fromkeys(line[0] for line in RULES)},
    )


def _modules() -> Iterator[Module]:
    for top in OURS:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            yield module_of(name, path.read_text(encoding="utf-8"), is_package=is_package)


# The rules. Each yields one line per offence: where it is, and what is wrong.


def mangles_no_name_outside_the_box(module: Module) -> Iterator[str]:
    """PySyncObj's private names are spelled in its box only, and in the tests of it as shipped."""
    if module.room == "node.raft.pysyncobj" or module.name.startswith("tests.node.raft.stock"):
        return
    for number, line in enumerate(module.text.splitlines(), 1):
        if MANGLED.search(line):
            yield f"{module.name}:{number}: a mangled name of the library: {line.strip()}"


def knows_only_rooms_below(module: Module) -> Iterator[str]:
    """A room imports no room but those that FLOORS grants it."""
    own = module.room
    if own is None:
        return
    for found in module.imports:
        other = room_of(found.target)
        if other not in (None, own) and other not in FLOORS[own].knows:
            yield f"{module.name}:{found.line}: {own} may not know {other} ({found.target})"


def uses_only_what_its_room_may(module: Module) -> Iterator[str]:
    """A room imports no package of others but those that FLOORS grants it (PySyncObj: one room)."""
    own = module.room
    if own is None:
        return
    for found in module.imports:
        top = found.target.split(".")[0]
        if top in OURS or top in sys.stdlib_module_names or top in FLOORS[own].uses:
            continue
        if top == "typing_extensions" and not found.at_run_time:
            continue  # It comes with mypy, the only one to read this.
        yield f"{module.name}:{found.line}: {own} may not use {top}"


def takes_no_private_name_of_another_room(module: Module) -> Iterator[str]:
    """A name with a leading underscore is for its own room, and for the tests of that room."""
    if module.room == "tests":
        return
    rooms_by_alias = {}
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = module._base(node) + "." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                rooms_by_alias[alias.asname or alias.name] = room_of(base + alias.name)
    for found in module.imports:
        other = room_of(found.target)
        if other not in (None, module.room) and any(map(is_private, found.target.split("."))):
            yield f"{module.name}:{found.line}: {found.target} is private to {other}"
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            other = rooms_by_alias.get(ast.unparse(node.value))
            if other not in (None, module.room):
                yield f"{module.name}:{node.lineno}: {ast.unparse(node)} is private to {other}"


def asks_the_machine_by_its_contract(module: Module) -> Iterator[str]:
    """The node uses of the machine what its contract lists, and goes round it nowhere."""
    if module.name.split(".")[0] != "node":
        return
    for found in module.imports:
        inside = room_of(found.target) == "fifo.machine"
        if inside and not f"{found.target}.".startswith("fifo.machine.contract."):
            yield f"{module.name}:{found.line}: {found.target} is not the machine's contract"
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("machine.state"):
            yield f"{module.name}:{node.lineno}: reads the state; ask a query of the contract"


def is_private(name: str) -> bool:
    """Whether a name has one leading underscore or two, but is not like __init__."""
    return name.startswith("_") and not name.endswith("__")


def machine_is_deterministic(module: Module) -> Iterator[str]:
    """Its answer stands on state, meta and command alone: no clock, chance, float or set order."""
    if module.room not in ("fifo.words", "fifo.machine"):
        return
    for found in module.imports:
        top = found.target.split(".")[0]
        if top in sys.stdlib_module_names and top not in MACHINE_STDLIB and found.at_run_time:
            yield f"{module.name}:{found.line}: imports {top}"
    for node in module.nodes:
        wrong = undetermined(node)
        if wrong:
            yield f"{module.name}:{getattr(node, 'lineno', 0)}: {wrong}"


def undetermined(node: ast.AST) -> str | None:
    """Name what could differ between two replicas, or None."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
            return f"calls {name}()"
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return "divides into a float"
        case ast.Constant(value=float()):
            return "a float"
        case ast.For(iter=over) | ast.comprehension(iter=over) if is_set(over):
            return "goes through a set in its own order"
    return None


def is_set(node: ast.expr) -> bool:
    """A set that can be seen to be one where it stands."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
    return False


def pickles_nothing(module: Module) -> Iterator[str]:
    """No socket and no file of ours carries a format that can run code when it is read."""
    for found in module.imports:
        if found.target.split(".")[0] in PICKLES and module.name.split(".")[0] in ("fifo", "node"):
            yield f"{module.name}:{found.line}: imports {found.target}"


def never_sleeps(module: Module) -> Iterator[str]:
    """A blocked thread is deaf: wait for a condition with a deadline, or on the loop."""
    for node in module.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield f"{module.name}:{node.lineno}: time.sleep"
    for found in module.imports:
        if found.target == "time.sleep":
            yield f"{module.name}:{found.line}: imports time.sleep"


def says_what_it_owns(module: Module) -> Iterator[str]:
    """Each module opens with what it owns and what it must not know."""
    if module.text.strip() and not ast.get_docstring(module.tree):
        yield f"{module.name}: no docstring"


def opens_its_package_with_what_it_owns(module: Module) -> Iterator[str]:
    """A package's `__init__` says what the package owns and what it must not know."""
    if module.is_package and not module.name.startswith("tests"):
        opening = " ".join((ast.get_docstring(module.tree) or "").lower().split())
        for phrase in ("owns", "must not know"):
            if phrase not in opening:
                yield f"{module.name}: the docstring of the package lacks {phrase!r}"


def fits_in_a_head(module: Module) -> Iterator[str]:
    """A module that a newcomer cannot hold in mind wants to be two."""
    lines = module.text.count("\n")
    if lines > LINES_AT_MOST:
        yield f"{module.name}: {lines} lines, at most {LINES_AT_MOST}"


def leaves_nothing_for_later(module: Module) -> Iterator[str]:
    """A gap is described in the docs, not left lying in the code."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if re.search(r"#.*\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b", line):
            yield f"{module.name}:{number}: {line.strip()}"


def speaks_the_language_of_the_field(module: Module) -> Iterator[str]:
    """Docstrings, comments, strings and names of tests keep to the words of CONTRIBUTING.md."""
    for line, offence in language.idioms_of_source(module.text, module.nodes):
        yield f"{module.name}:{line}: {offence}"


def begins_its_docstrings_with_a_verb_or_a_noun(module: Module) -> Iterator[str]:
    """A docstring begins with a verb in the imperative or a noun phrase, never with a pronoun."""
    for line, opening in language.openings(module.nodes):
        yield f"{module.name}:{line}: {opening}"


# A rule, and a module that breaks it (name, source). Each rule must find its examples, so one that
# has stopped looking fails.
RULES: list[tuple[Rule, str, str]] = [
    (knows_only_rooms_below, "fifo.wire.frames", "from fifo.machine import commands"),
    (knows_only_rooms_below, "fifo.machine.state", "from ..wire import frames"),
    (knows_only_rooms_below, "node.raft.journal", "import node.broker.node"),
    (uses_only_what_its_room_may, "node.broker.node", "import pysyncobj"),
    (uses_only_what_its_room_may, "node.raft.core", "from pysyncobj import SyncObj"),
    (mangles_no_name_outside_the_box, "node.raft.core", "core._Sync" + "Obj__raftState"),
    (mangles_no_name_outside_the_box, "tests.x", "# _Sync" + "Obj__raftState is the role"),
    (uses_only_what_its_room_may, "fifo.client.link", "def f():\n    import msgpack"),
    (
        takes_no_private_name_of_another_room,
        "node.broker.node",
        "from node.raft.journal import _crc",
    ),
    (takes_no_private_name_of_another_room, "bench.x", "from node import raft\nraft._crc(b'')"),
    (asks_the_machine_by_its_contract, "node.cli.state", "from fifo.machine import queries"),
    (asks_the_machine_by_its_contract, "node.server", "found = host.machine.state.queues"),
    (machine_is_deterministic, "fifo.machine.locks", "import time"),
    (machine_is_deterministic, "fifo.machine.locks", "half = count / 2"),
    (machine_is_deterministic, "fifo.machine.locks", "order = hash(name)"),
    (machine_is_deterministic, "fifo.machine.locks", "for name in {a, b}: pass"),
    (pickles_nothing, "node.raft.transport", "from pickle import loads"),
    (never_sleeps, "tests.x", "import time\ntime.sleep(1)"),
    (never_sleeps, "bench.x", "from time import sleep"),
    (says_what_it_owns, "node.raft.journal", "x = 1"),
    (opens_its_package_with_what_it_owns, "fifo.wire", '"""Frames. Owns the bytes."""'),
    (fits_in_a_head, "node.raft.journal", "x = 1\n" * (LINES_AT_MOST + 1)),
    (leaves_nothing_for_later, "node.raft.journal", "x = 1  # TO" + "DO later"),
    *[
        (speaks_the_language_of_the_field, "tests.revised", source)
        for idiom in language.avoided()
        for source in (
            f"# The door is {idiom} open.",
            "# " + "\n# ".join(f"and {idiom} shut".split()),
            f'raise ValueError(f"{idiom} {{x}}")',
            f"def test_{idiom.replace(' ', '_')}(): ...",
        )
    ],
    *[
        (begins_its_docstrings_with_a_verb_or_a_noun, "tests.revised", source)
        for opening in language.OPENINGS
        for source in (f'"""{opening} is right."""', f'x = 1\n"""{opening} counts."""')
    ],
]


def named(rule: Rule) -> str:
    """The rule's own name is the test's."""
    return rule.__name__


@pytest.mark.parametrize("rule", list(dict.fromkeys(line[0] for line in RULES)), ids=named)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    """Every module of the project, one rule."""
    found = [offence for module in house() for offence in module.offences[rule]]
    assert not found, f"{rule.__doc__}\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "name", "source"), RULES, ids=[f"{line[0].__name__}-{line[1]}" for line in RULES]
)
def test_the_rule_finds_what_breaks_it(rule: Rule, name: str, source: str) -> None:
    """A rule that finds nothing in its own bad example guards nothing."""
    assert list(rule(module_of(name, source, is_package=name in FLOORS)))


def test_every_module_has_a_room() -> None:
    """A new folder gets a line in FLOORS, so that somebody has thought about what it may know."""
    assert not [module.name for module in house() if module.room is None]


def test_no_floor_knows_one_above_it() -> None:
    """FLOORS is ordered: read from the top, a room knows only what stands before it."""
    seen: set[str] = set()
    for name, own in FLOORS.items():
        assert own.knows <= seen, f"{name} knows {sorted(own.knows - seen)}, which stand above it"
        seen.add(name)


def test_no_room_of_node_is_a_house_within_the_house() -> None:
    """The largest room has less than LARGEST_ROOM of the lines of `node`."""
    lines: Counter[str] = Counter()
    for module in house():
        if module.name.startswith("node."):
            lines[".".join(module.name.split(".")[:2])] += module.lines
    ((name, most),) = lines.most_common(1)
    assert most < LARGEST_ROOM * lines.total(), f"{name} has {most} of {lines.total()} lines"


def test_a_class_name_has_one_meaning_in_its_package() -> None:
    """Two classes of one name in a package are one, or want another word."""
    homes: dict[tuple[str, str], list[str]] = {}
    for module in house():
        if module.room not in (None, "tests"):
            package = ".".join(module.name.split(".")[:-1][:2])
            for name in module.classes:
                homes.setdefault((package, name), []).append(module.name)
    twice = {key: names for key, names in homes.items() if len(names) > 1}
    assert twice == {}


def cycles(modules: Collection[Module | Judged], *, for_types: bool = False) -> list[str]:
    """Import cycles at run time, or those `for_types` too, each as a > b > a."""
    graph: dict[str, set[str]] = {module.name: set() for module in modules}
    for module in modules:
        for found in module.imports:
            target = found.target if found.target in graph else found.target.rpartition(".")[0]
            counts = found.at_run_time or for_types
            if counts and target in graph and target != module.name:
                graph[module.name].add(target)
    done: set[str] = set()
    loops: list[str] = []

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            loops.append(" > ".join([*trail[trail.index(name) :], name]))
        elif name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    return loops


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Two modules that need each other are one, or want a third."""
    assert not cycles(house())


@pytest.mark.parametrize("name", sorted(FLOORS.keys() - CIRCLES_FOR_TYPES))
def test_no_modules_of_a_room_need_each_other_for_types(name: str) -> None:
    """Where it is so, it stays so: each file can be read after those that it names."""
    assert not cycles([module for module in house() if module.room == name], for_types=True)


def test_a_circle_is_found() -> None:
    """The search above sees one through a package's own name too."""
    circle = [
        module_of("fifo.wire.a", "from fifo.wire import b"),
        module_of("fifo.wire.b", "from .c import x"),
        module_of("fifo.wire.c", "import fifo.wire.a"),
    ]
    assert cycles(circle) == ["fifo.wire.a > fifo.wire.b > fifo.wire.c > fifo.wire.a"]
    circle[1] = module_of("fifo.wire.b", "if TYPE_CHECKING:\n    from .c import x")
    assert not cycles(circle)
    assert cycles(circle, for_types=True)


# Words that make sense only on the machine of their author. Written with brackets or in
# pieces, so that this file does not find itself.
MACHINE_BOUND = re.compile(
    r"/(?:home|Users)/\w+|(?<![\w.])/(?:root|wor[k]|far[m])/|/opt/py[p]i"
    r"|--(?:extra-)?index-ur[l]\b|--find-link[s]\b|https?://[\w.:@-]*py[p]i[\w.]*"
    r"|https?://[^\s)>\"']*/simpl[e]\b"
)
TEXT_SUFFIXES = frozenset({".py", ".md", ".toml", ".lock", ".sh", ".txt", ".yml", ".yaml", ""})
TOP_LEVEL_FOLDERS = (*OURS, "docs", "packaging", "deploy", ".ci")


def texts() -> Iterator[Path]:
    """Every text file of the project."""
    folders = [ROOT / name for name in TOP_LEVEL_FOLDERS]
    inside = (path for folder in folders for path in sorted(folder.rglob("*")))
    for path in (*sorted(ROOT.iterdir()), *inside):
        if path.name == ".git":  # a linked work tree has a file here that names its repository
            continue
        if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
            yield path


def test_no_file_names_a_path_or_a_registry_of_a_developers_machine() -> None:
    """The project installs and runs anywhere, so it names no place that only one machine has."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_BOUND.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "cd /ho" + "me/ada/fifo",
        "--index-" + "url x",
        "https://py" + "pi.example/simple",
        "/ro" + "ot/x",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    """The search sees what it is for."""
    assert MACHINE_BOUND.search(line)


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of everything written for readers outside the code."""
    for path in texts():
        if path.suffix in {".md", ".toml"}:
            folders = path.relative_to(ROOT).parent.parts
            yield ".".join([*folders, path.stem]), path.read_text(encoding="utf-8")


def test_no_page_has_a_mangled_name() -> None:
    assert not [name for name, text in pages() if MANGLED.search(text)]


def test_no_page_has_an_idiom_to_avoid() -> None:
    """Pages keep to the same words as the code; the table of words itself is left out."""
    table = language.words_section((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    found = [
        f"{name}:{line}: {offence}"
        for name, text in pages()
        for line, offence in language.idioms(text.replace(table, "\n" * table.count("\n")))
    ]
    assert not found, "\n".join(found)


def test_the_lock_pins_every_requirement_with_a_hash() -> None:
    """`pip install --require-hashes` needs it, and a lock edited by hand would miss one."""
    lock = (ROOT / "requirements.lock").read_text()
    requirements = re.split(r"\n(?=\S)", lock.strip())
    assert len(requirements) > 20
    for requirement in requirements:
        assert re.match(r"[\w.-]+==\S+", requirement), requirement[:80]
        assert "--hash=sha256:" in requirement, requirement[:80]


def test_pysyncobj_is_pinned_exactly() -> None:
    """node/raft overrides private methods of it, so another version is another program."""
    assert '"pysyncobj==0.3.17"' in (ROOT / "pyproject.toml").read_text()
    assert "\npysyncobj==0.3.17 " in (ROOT / "requirements.lock").read_text()
