"""Every picture that a page of `docs/` shows is there, is SVG or a small PNG, and is shown."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

DOCS = Path(__file__).parents[1] / "docs"

PICTURE_BYTES_MAX = 40_000
"""A picture is text and a few lines; outlines of letters or thousands of points are not."""

PNG_BYTES_MAX = 60_000
"""A picture of a page of the console: few colours."""

_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


def shown() -> list[tuple[str, str, str]]:
    """(page, text for a reader without pictures, path) of each picture."""
    return [
        (page.name, words, path)
        for page in sorted(DOCS.glob("*.md"))
        for words, path in _SHOWN.findall(page.read_text())
    ]


@pytest.mark.parametrize(("page", "words", "path"), shown())
def test_a_picture_of_a_page_is_small_and_valid(page: str, words: str, path: str) -> None:
    assert words, f"{page} says nothing to those who do not see {path}"
    file = DOCS / path
    if path.endswith(".png"):
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < PNG_BYTES_MAX
        return
    root = ET.fromstring(file.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox"), "it does not scale"
    assert list(root.iter("{http://www.w3.org/2000/svg}path")), "nothing is drawn"
    assert file.stat().st_size < PICTURE_BYTES_MAX


def test_every_picture_is_shown() -> None:
    kept = {f"pictures/{path.name}" for path in (DOCS / "pictures").iterdir()}
    assert kept == {path for _, _, path in shown()}
