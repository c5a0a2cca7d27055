"""The names of `import fifo`: all are there, and those of workers are loaded when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fifo
from bench.processes import environment

SCRIPT = """
import sys
import fifo
assert "fifo.worker" not in sys.modules
assert set(fifo.__all__) <= set(dir(fifo))
assert fifo.worker.App is fifo.App
assert "fifo.worker.worker" in sys.modules
from fifo import *
assert Worker is fifo.Worker
"""


@pytest.mark.slow
def test_a_program_that_runs_no_worker_does_not_load_one() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, env=environment())


def test_a_name_that_is_not_there_is_an_attribute_error_with_the_name() -> None:
    with pytest.raises(AttributeError, match="'fifo' has no attribute 'Consumers'"):
        fifo.Consumers  # type: ignore[attr-defined]  # noqa: B018  # it is not there
