"""Write layers as an image in an OCI layout, and print its digest.

    python deploy/image/oci.py FOLDER LAYER.tar...

Owns the documents of the image: same layers, same SOURCE_DATE_EPOCH, same digest. The program runs
as a user without rights, in the folder of its data.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

USER = "10001:10001"
PORTS = ("7101/tcp", "7102/tcp", "7103/tcp")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MEDIA = "application/vnd.oci.image"


class Layout:
    """A folder of blobs, each under its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)

    def add(self, kind: str, data: bytes) -> dict[str, Any]:
        """Store a blob; its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return {"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, kind: str, value: Any) -> dict[str, Any]:
        """Store a document in one form."""
        return self.add(kind, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def main(arguments: list[str]) -> None:
    """Write the image of these layers."""
    folder, *layers = map(Path, arguments)
    created = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    stamp = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    layout = Layout(folder)
    descriptors, identities = [], []
    for layer in layers:
        data = layer.read_bytes()
        identities.append(f"sha256:{hashlib.sha256(data).hexdigest()}")
        packed = gzip.compress(data, 9, mtime=0)
        descriptors.append(layout.add("layer.v1.tar+gzip", packed))
    config = {
        "architecture": ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "created": stamp,
        "config": {
            "User": USER,
            "WorkingDir": "/var/lib/fifo",
            "Entrypoint": ["/usr/bin/fifo"],
            "Cmd": ["serve", "--config", "/etc/fifo/cluster.toml"],
            "Env": [
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "LANG=C.UTF-8",
                "PYTHONDONTWRITEBYTECODE=1",
                "FIFO_LOG_FORMAT=json",
            ],
            "ExposedPorts": {port: {} for port in PORTS},
            "Volumes": {"/var/lib/fifo": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "fifo",
                "org.opencontainers.image.description": "A replicated work queue",
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": identities},
        "history": [{"created": stamp, "created_by": layer.stem} for layer in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": layout.add_json("config.v1+json", config),
        "layers": descriptors,
    }
    found = layout.add_json("manifest.v1+json", manifest)
    named = {**found, "annotations": {"org.opencontainers.image.ref.name": "fifo"}}
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [named]}
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True, indent=1) + "\n")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
    sys.stdout.write(f"{found['digest']}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
