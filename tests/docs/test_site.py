"""The site of the pages: what `make docs` is to build exists, and no page would load a stranger.

The build itself is `make docs`, which installs what it needs; what would stop it is looked for here
in every run. That links lead to headings is `test_citations.py`'s. Must not know what a page says.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.pytest_ids import ROOT
from tools import docs_site

SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
API = sorted((ROOT / "docs/api").glob("*.md"))
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *API]

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"^ +- ([\w/-]+\.md)$", SITE, re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_of_the_site_links_to_nothing_outside_of_it(path: Path) -> None:
    """Such a link leads nowhere on the site, and `make docs` fails."""
    links = _LINK.findall(path.read_text(encoding="utf-8"))
    outside = [
        one for one in links if not (path.parent / one).resolve().is_relative_to(ROOT / "docs")
    ]
    assert outside == []


def test_what_builds_the_site_is_locked() -> None:
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"]
    lock = (ROOT / "requirements-docs.lock").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    for line in group:
        wanted = Requirement(line)
        assert wanted.specifier.contains(pinned[wanted.name]), line


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
