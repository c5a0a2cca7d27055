"""The two distributions: their files, their requirements, and the use of each when installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from contextlib import contextmanager
from email.parser import HeaderParser
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from bench.cluster import NODE_PORTS
from bench.loopback import free_base
from fifo import testing
from fifo.__main__ import MISSING
from node.cli.processes import wait_until
from tests.packaging.conftest import SERVER_PROJECT, build, installed, pip
from tools import set_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.packaging.conftest import Environment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PROJECT = tomllib.loads((set_up.ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
START_S = 60
STOP_S = 30
BASE = {"fifo-quorum", "msgpack"}
TEST_WITH_A_CLUSTER = """
import asyncio, fifo, fifo.testing
async def main():
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        print(cluster.queue("orders").view.ready)
asyncio.run(main())
"""


SHOP = """
import importlib.util
import fifo
assert importlib.util.find_spec("node") is None
app = fifo.App()
@app.task("alone")
async def on_the_loop(number: int) -> str:
    return f"loop {number}"
@app.task("alone")
def in_a_process(number: int) -> str:
    return f"process {number}"
"""
SEND = """
import asyncio, sys
from shop import app, in_a_process, on_the_loop
app.url = sys.argv[1]
async def main():
    async with app:
        print(await on_the_loop.call(7), await in_a_process.call(7), sep=", ")
asyncio.run(main())
"""


def wheel_of(distributions: Path, name: str) -> Path:
    """The one wheel of a distribution."""
    (wheel,) = distributions.glob(f"{name}-*.whl")
    return wheel


def files_of(wheel: Path) -> set[str]:
    """Files that a wheel installs into site-packages, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sources_of(*packages: str) -> set[str]:
    """Files of packages in the checkout, without caches."""
    return {
        str(path.relative_to(set_up.ROOT))
        for package in packages
        for path in (set_up.ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def requirements_of(wheel: Path) -> set[Requirement]:
    """Requirements of a wheel that hold without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    found = map(Requirement, metadata.get_all("Requires-Dist") or [])
    return {one for one in found if one.marker is None or "extra" not in str(one.marker)}


def test_the_client_is_fifo_with_its_plugins_and_requires_msgpack_alone(
    distributions: Path,
) -> None:
    wheel = wheel_of(distributions, "fifo_quorum")
    assert files_of(wheel) == sources_of("fifo", "pytest_fifo", "pyspark_fifo")
    assert {one.name for one in requirements_of(wheel)} == {"msgpack"}


def test_the_server_is_the_package_node_and_requires_exactly_its_client(
    distributions: Path,
) -> None:
    wheel = wheel_of(distributions, "fifo_quorum_server")
    assert files_of(wheel) == sources_of("node")
    group = PROJECT["dependency-groups"]["server"]
    assert requirements_of(wheel) == set(map(Requirement, [f"fifo-quorum=={VERSION}", *group]))
    assert wheel.name.startswith(f"fifo_quorum_server-{VERSION}-")


def test_the_servers_sdist_builds_the_same_wheel(distributions: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=SERVER_PROJECT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    rebuilt = build(sdist, tmp_path)
    wheel = wheel_of(distributions, "fifo_quorum_server")
    assert files_of(rebuilt) == files_of(wheel)
    assert requirements_of(rebuilt) == requirements_of(wheel)


def test_an_editable_install_of_the_server_is_refused() -> None:
    with pytest.raises(AssertionError, match="never installed editable"):
        pip("install", "--no-deps", "--no-build-isolation", "--editable", str(SERVER_PROJECT))


def test_the_client_alone_names_the_server_to_install(
    python: str, distributions: Path, tmp_path: Path
) -> None:
    alone = installed(python, tmp_path / "client", "fifo-quorum", distributions)
    assert names_in(alone) == BASE
    used = alone.run("python", "-c", "import fifo, fifo.blocking; fifo.QueueSpec('q', lock=30)")
    assert used.returncode == 0, used.stderr
    for command in (("fifo", "status"), ("python", "-m", "fifo", "--help")):
        done = alone.run(*command)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{MISSING}\n")
    worker = alone.run("fifo", "worker", "nowhere:app")
    assert (worker.returncode, worker.stdout) == (1, "")
    assert worker.stderr.startswith("fifo worker: there is no module 'nowhere' in ")
    plugins = "from importlib.metadata import entry_points as e; print(*e(group='pytest11').names)"
    assert alone.run("python", "-c", plugins).stdout == "pytest_fifo\n"
    tested = alone.run("python", "-c", TEST_WITH_A_CLUSTER)
    assert tested.stderr.splitlines()[-1] == f"ModuleNotFoundError: {testing.MISSING}"


def test_the_server_brings_the_command_line_and_a_node_that_works(
    python: str, distributions: Path, tmp_path: Path
) -> None:
    full = installed(python, tmp_path / "server", "fifo-quorum[server]", distributions)
    assert names_in(full) >= {*BASE, "fifo-quorum-server", "pysyncobj"}
    assert full.run("fifo", "--version").stdout == f"fifo {VERSION}\n"
    assert "Commands" in full.run("fifo", "--help").stdout
    tested = full.run("python", "-c", TEST_WITH_A_CLUSTER)
    assert (tested.stdout, tested.stderr) == ("1\n", "")
    with node(full) as url:
        published = full.run("fifo", "publish", "orders", "--body", "hello", "--url", url)
        assert published.returncode == 0, published.stderr
        consumed = full.run("fifo", "consume", "orders", "--count", "1", "--url", url)
        assert (consumed.stdout, consumed.stderr) == ("hello\n", "")
        works_alone(installed(python, tmp_path / "client", "fifo-quorum", distributions), url)


def works_alone(client: Environment, url: str) -> None:
    """`fifo worker` runs handlers, on its loop and in processes, with the client's wheel alone."""
    (client.folder / "shop.py").write_text(SHOP)
    (client.folder / "send.py").write_text(SEND)
    command = [str(client.folder / "bin" / "fifo"), "worker", "shop:app", "--url", url]
    environ = {**client.environ(), "FIFO_URL": url}
    worker = subprocess.Popen(
        command, cwd=client.folder, env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        sent = client.run("python", "send.py", url)
        assert (sent.stdout, sent.stderr) == ("loop 7, process 7\n", "")
    finally:
        worker.terminate()
        _, log = worker.communicate(timeout=STOP_S)
    assert worker.returncode == 0, log


def names_in(environment: Environment) -> set[str]:
    """Names of the installed distributions."""
    listing = "from importlib.metadata import distributions as d; print(*(x.name for x in d()))"
    return set(environment.run("python", "-c", listing).stdout.lower().split())


@contextmanager
def node(environment: Environment) -> Iterator[str]:
    """Serve one node that has the queue `orders`; yields its URL."""
    base = free_base(NODE_PORTS)
    url = f"fifo://127.0.0.1:{base + 1}"
    log = environment.folder / "node.log"
    command = [str(environment.folder / "bin" / "fifo"), "serve", "--base-port", str(base)]
    with log.open("w") as stderr:
        serving = subprocess.Popen(
            command, cwd=environment.folder, env=environment.environ(), stderr=stderr
        )
    try:
        declare = ("queue", "declare", "orders", "--url", url)
        assert wait_until(lambda: environment.run("fifo", *declare).returncode == 0, START_S), (
            log.read_text()
        )
        yield url
    finally:
        serving.terminate()
        code = serving.wait(STOP_S)
    assert code == 0, log.read_text()
