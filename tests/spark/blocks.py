"""The code of docs/spark.md, run by tests as it stands there.

Owns how a block is found. Must not change a line of it: names that a reader brings are given.
"""

from __future__ import annotations

import re
from typing import Any

import fifo.spark
from tests.support.pages import page


def run_block(defines: str, **names: Any) -> dict[str, Any]:
    """Run the Python block of the page that defines this function or class; its names behind it."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", page("spark"), re.M | re.S)
    [block] = [one for one in blocks if re.search(rf"^(def|class) {defines}\b", one, re.M)]
    names = {"fifo": fifo, **names}
    exec(compile(block, f"docs/spark.md, {defines}", "exec"), names)
    return names
