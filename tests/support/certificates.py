"""An authority of members and the certificates that it signs, made by openssl.

The test is skipped where there is none. Certificates of the client port are in `users.py`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from node.config import TlsSettings
from node.peers.tls import PeerTls


class Authority:
    """Signs for whom it is asked to; everything is in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.ca = folder / "ca.pem"
        self._run("ca", "fifo-test-authority", ("-addext", "basicConstraints=critical,CA:TRUE"))

    def member(self, name: str) -> PeerTls:
        """The files of a member of that name, made on the first call."""
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not cert.exists():
            signed = ("-CA", str(self.ca), "-CAkey", str(self.folder / "ca.key"))
            self._run(name, "member", (*signed, "-addext", f"subjectAltName=DNS:{name}"))
        return PeerTls(cert, key, self.ca)

    def settings(self, *names: str) -> TlsSettings:
        """`[tls]` of a cluster of these members."""
        for name in names:
            self.member(name)
        return TlsSettings(
            self.folder, peer_cert="{node}.pem", peer_key="{node}.key", peer_ca="ca.pem"
        )

    def _run(self, file: str, common_name: str, options: tuple[str, ...]) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl is not installed: apt-get install openssl")
        made = (
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        )
        files = ("-keyout", self.folder / f"{file}.key", "-out", self.folder / f"{file}.pem")
        subprocess.run(
            [*made, "-nodes", "-days", "2", "-subj", f"/CN={common_name}", *files, *options],
            check=True,
            capture_output=True,
            timeout=30,
        )
