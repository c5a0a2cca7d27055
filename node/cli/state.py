"""The folder of a local cluster, shared by ``fifo cluster start`` and the other commands.

Owns the layout of ``.fifo`` (``cluster.toml``, ``cluster.json``, one folder per node) and the
format of ``cluster.json``. Must not start or signal processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from node.cli.errors import CliError, one_line
from node.cli.processes import ProcessId
from node.config import ClusterConfig, load_config, to_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER_DEFAULT: Final = Path(".fifo")
SINGLE: Final = "single"

_CONFIG: Final = "cluster.toml"
_STATE: Final = "cluster.json"
_LOCK: Final = "cluster.lock"
_LOG: Final = "node.log"
_REQUESTS: Final = {False: "start", True: "recover"}
_OURS: Final = re.compile(r"cluster\.(toml|json|lock)(\.new)?|n[1-9][0-9]?|single|example")


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as last started: its addresses as text, and its process."""

    name: str
    client: str
    peer: str
    http: str
    data_dir: str
    process: ProcessId | None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Content of ``cluster.json``; ``supervisor`` is the foreground `cluster start`, if any."""

    url: str
    supervisor: ProcessId | None
    nodes: tuple[NodeState, ...]

    def living(self) -> list[NodeState]:
        """The nodes whose process still exists."""
        return [n for n in self.nodes if n.process is not None and n.process.alive]

    def node(self, which: str) -> NodeState:
        """Find a node by its number, from 1, or its name; raise CliError for an unknown one."""
        for number, node in enumerate(self.nodes, 1):
            if which in (str(number), node.name):
                return node
        raise CliError(
            f"no node {which!r} in this cluster; choose one of 1 to {len(self.nodes)}, or a name"
        )

    def with_process(self, name: str, process: ProcessId | None) -> ClusterState:
        """A copy of the state with another process for one node."""
        nodes = tuple(replace(n, process=process) if n.name == name else n for n in self.nodes)
        return replace(self, nodes=nodes)


class ClusterFolder:
    """The files of one local cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config_path(self) -> Path:
        """Path of the configuration that the nodes were started with."""
        return self.path / _CONFIG

    def log_path(self, name: str) -> Path:
        """Path of the log, a node's stderr."""
        return self.node_path(name) / _LOG

    def start_request(self, name: str, *, recover: bool = False) -> Path:
        """Path of the file that requests a restart from the foreground `cluster start`."""
        return self.node_path(name) / _REQUESTS[recover]

    def load(self) -> ClusterState | None:
        """Read the state; None without one. Raises CliError for a damaged file."""
        path = self.path / _STATE
        try:
            return _from_plain(json.loads(path.read_text(encoding="utf-8")), self.path)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise CliError(f"{self.path} is not a folder; choose another with --dir") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = one_line(error)
            raise CliError(
                f"{path} is damaged ({problem}); stop the nodes by hand, then delete the file"
            ) from None

    def require(self) -> ClusterState:
        """Read the state; raise CliError where no cluster was started here."""
        state = self.load()
        if state is None:
            raise CliError(
                f"no cluster was started in {self.path}; start one: fifo cluster start{self.flag}"
            )
        return state

    @property
    def flag(self) -> str:
        """The --dir option that a suggested `fifo cluster` command needs for this folder."""
        return "" if self.path == FOLDER_DEFAULT else f" --dir {self.path}"

    def save(self, state: ClusterState) -> None:
        """Replace ``cluster.json`` atomically."""
        path = self.path / _STATE
        new = path.with_suffix(".json.new")
        new.write_text(json.dumps(_to_plain(state, self.path), indent=2) + "\n", encoding="utf-8")
        new.replace(path)

    def existing_config(self) -> ClusterConfig | None:
        """Load the configuration of an earlier start; raises ConfigError where it is invalid."""
        return load_config(self.config_path) if self.config_path.exists() else None

    def write_config(self, config: ClusterConfig) -> None:
        """Replace ``cluster.toml`` atomically."""
        new = self.config_path.with_suffix(".toml.new")
        new.write_text(to_toml(config), encoding="utf-8")
        new.replace(self.config_path)

    def prepare(self) -> None:
        """Create the folder; raise CliError for a foreign or read-only one."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = sorted(p.name for p in self.path.iterdir() if not _OURS.fullmatch(p.name))
            probe = self.path / f"{_LOCK}.new"
            probe.touch()
            probe.unlink()
        except (FileExistsError, NotADirectoryError):
            raise CliError(f"{self.path} is not a folder; choose another with --dir") from None
        except OSError as error:
            raise CliError(
                f"{self.path} cannot be written ({error.strerror}); choose a folder with --dir"
            ) from None
        if foreign:
            raise CliError(
                f"{self.path} contains {foreign[0]!r}, which is no file of a cluster:"
                " nothing was changed; choose an empty folder with --dir"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against concurrent `fifo cluster` commands."""
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CliError(
                    f"another fifo command is changing the cluster in {self.path}; try again later"
                ) from None
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def locked_if_present(self) -> Iterator[None]:
        """Lock the folder where a cluster was started in it; write nothing elsewhere."""
        if not (self.path / _STATE).exists():
            yield
            return
        with self.locked():
            yield

    def own_files(self) -> list[Path]:
        """Files of the folder itself, those that exist; ``cluster.json`` near the end, after it
        only the lock.
        """
        names = (f"{_CONFIG}.new", _CONFIG, f"{_STATE}.new", _STATE, _LOCK)
        return [path for name in names if (path := self.path / name).exists()]

    def node_path(self, name: str) -> Path:
        """Folder of one node: its log, requests of a restart, by default its data."""
        return self.path / name

    def is_node_file(self, name: str) -> bool:
        """Whether a file of this name in a node's folder is one that the commands make."""
        return name in (_LOG, *_REQUESTS.values())


def state_of(config: ClusterConfig) -> ClusterState:
    """Initial state of a cluster, before any node is started."""
    nodes = tuple(
        NodeState(n.name, str(n.client), str(n.peer), str(n.http), str(n.data_dir), None)
        for n in config.nodes
    )
    return ClusterState(config.url, None, nodes)


def _to_plain(state: ClusterState, folder: Path) -> dict[str, object]:
    return {
        "url": state.url,
        "supervisor": _plain_process(state.supervisor),
        "nodes": [
            {
                "name": node.name,
                **(_plain_process(node.process) or {"pid": None, "started": None}),
                "client": node.client,
                "peer": node.peer,
                "http": node.http,
                "data_dir": _relative(Path(node.data_dir), folder),
            }
            for node in state.nodes
        ],
    }


def _from_plain(value: dict[str, object], folder: Path) -> ClusterState:
    nodes = value["nodes"]
    supervisor = value["supervisor"]
    if not isinstance(nodes, list):
        raise TypeError("nodes is not a list")
    return ClusterState(
        url=str(value["url"]),
        supervisor=_process(supervisor) if isinstance(supervisor, dict) else None,
        nodes=tuple(
            NodeState(
                name=str(node["name"]),
                client=str(node["client"]),
                peer=str(node["peer"]),
                http=str(node["http"]),
                data_dir=str(folder / str(node["data_dir"])),
                process=_process(node),
            )
            for node in nodes
        ),
    )


def _relative(path: Path, folder: Path) -> str:
    """A path as the file has it: relative inside the folder, which may be moved or be named
    differently by the next command.
    """
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path.absolute())


def _plain_process(process: ProcessId | None) -> dict[str, object] | None:
    return None if process is None else {"pid": process.pid, "started": process.started}


def _process(value: dict[str, object]) -> ProcessId | None:
    pid = value["pid"]
    return ProcessId(pid, str(value["started"])) if isinstance(pid, int) and pid > 0 else None
