"""Permissions as an ordinary user meets them, also where the tests run as root.

Owns the way down and back up. Root may write everywhere, so what a folder without permission does
could not be seen as root otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """An empty folder of one's own, and no more rights than its owner, until the end.

    Modules that are imported meanwhile have to be readable by everyone: import them before.
    """
    folder = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield folder
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        folder.chmod(0o700)
        shutil.rmtree(folder)
