"""Build the site of docs/ into site/: `make docs`.

Owns the environment that builds it, `.venv-docs`, made anew when requirements-docs.lock changes.
Imports the standard library only. After the build no page may load anything from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-docs"
LOCK = ROOT / "requirements-docs.lock"
STAMP = ENVIRONMENT / "set-up.stamp"
SITE = ROOT / "site"

_LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(https?://[^"'\s>]+)"""
)
_HARMLESS = re.compile(r"""<link\b[^>]*\brel=["']?(?:canonical|alternate)""")


def set_up() -> None:
    """Install what the lock names, unless it is installed."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest:
        return
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    STAMP.write_text(digest)


def loaded_from_elsewhere() -> list[str]:
    """List what pages load from another host: `page: address`."""
    found = []
    for page in sorted(SITE.rglob("*.html")):
        for tag in re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", page.read_text("utf-8")):
            match = _LOADED.match(tag)
            if match is not None and not _HARMLESS.match(tag):
                found.append(f"{page.relative_to(SITE)}: {match[1]}")
    return found


def main() -> int:
    """Build; the exit code."""
    set_up()
    mkdocs = [str(ENVIRONMENT / "bin" / "mkdocs"), "build", "--strict", "--clean", "--quiet"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of the theme, about the next MkDocs
    done = subprocess.run(mkdocs, cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        return done.returncode
    strangers = loaded_from_elsewhere()
    for line in strangers:
        print(f"site/{line} is loaded from elsewhere", file=sys.stderr)
    if not strangers:
        print(f"site/index.html: {len(list(SITE.rglob('*.html')))} pages")
    return 1 if strangers else 0


if __name__ == "__main__":
    sys.exit(main())
