"""The site of the pages: what `make docs` is to build exists, and no page would load a stranger.

The build itself is `make docs`, which installs what it needs. Must not know what a page says.
"""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from tests.support.pytest_ids import ROOT
from tools import docs_site

SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
API = sorted((ROOT / "docs/api").glob("*.md"))


def test_the_pages_of_the_navigation_exist_and_all_of_the_reference_is_in_it() -> None:
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", SITE, re.MULTILINE))
    assert listed
    assert [name for name in listed if not (ROOT / "docs" / name).exists()] == []
    assert {f"api/{path.name}" for path in API} <= listed


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_every_name_of_the_reference_is_in_the_code(path: Path) -> None:
    names = re.findall(r"^::: ([\w.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    for name in names:
        assert pkgutil.resolve_name(name) is not None


def test_what_a_page_would_load_from_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs_site, "SITE", tmp_path)
    (tmp_path / "own.html").write_text(
        '<link rel="canonical" href="https://fifo.example/"><a href="https://example.org">x</a>'
        '<script src="assets/a.js"></script>'
    )
    assert docs_site.loaded_from_elsewhere() == []
    (tmp_path / "other.html").write_text('<link rel="stylesheet" href="https://cdn.example/a.css">')
    assert docs_site.loaded_from_elsewhere() == ["other.html: https://cdn.example/a.css"]
