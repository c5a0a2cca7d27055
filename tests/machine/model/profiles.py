"""The number of examples: `quick` in every run, `thorough` by `make thorough`.

`tests/conftest.py` registers the profiles with Hypothesis; the tests that need no Hypothesis ask
here, so that one option decides for all of them.
"""

from hypothesis import settings

THOROUGH_EXAMPLES = 1_000


def present() -> settings:
    """The settings of this run."""
    found = settings.default
    assert found is not None
    return found


def is_thorough() -> bool:
    """Whether the run was started with `--hypothesis-profile=thorough`."""
    return present().max_examples >= THOROUGH_EXAMPLES
