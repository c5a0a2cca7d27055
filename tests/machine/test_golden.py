"""Every golden scenario has the outcome in its file; `--rewrite` writes the files anew."""

from pathlib import Path

import pytest

from tests.machine import story

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_story(path: Path, request: pytest.FixtureRequest) -> None:
    told = path.read_text()
    came = story.run(told)
    if request.config.getoption("rewrite", default=False):
        path.write_text(came)
    assert came == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 20
