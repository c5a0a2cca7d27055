"""Build hooks of the server's distribution.

Owns the two facts that its project file cannot state: version and dependencies are those of the
checkout's project file, and the package `node` lies outside this folder. In an sdist both are
inside: PKG-INFO has the metadata, and `node` stands beside this file. Must not import `fifo` or
`node`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "node"


class ServerMetadata(MetadataHookInterface):
    """Version and dependencies of the server."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Take both from the checkout, and require the client of exactly this version."""
        root = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
        client = root["project"]
        metadata["version"] = client["version"]
        metadata["dependencies"] = [
            f"{client['name']}=={client['version']}",
            *root["dependency-groups"]["server"],
        ]


class ServerFiles(BuildHookInterface[Any]):
    """The files of the server."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the package; raises ValueError for an editable install."""
        if version == "editable":
            raise ValueError("fifo-quorum-server is never installed editable: run `make setup`")
        inside = Path(self.root) / PACKAGE
        source = inside if inside.is_dir() else CHECKOUT / PACKAGE
        build_data["force_include"][str(source)] = PACKAGE
