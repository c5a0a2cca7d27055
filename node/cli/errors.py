"""Failures of the command line: one line with a remedy, and an exit code.

Owns the exceptions that commands raise on purpose. Must not print; `node.cli.main` does.
"""

from __future__ import annotations

FAILED = 1
"""Exit code of a command that was understood and failed."""

USAGE = 2
"""Exit code of a command line that could not be understood."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it: 128 + SIGINT."""


class CliError(Exception):
    """A failure as one line for stderr. ``code`` is the exit code, 1 or 2."""

    def __init__(self, line: str, *, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


class UsageProblem(CliError):
    """A usage error: options that exclude one another, or a value that cannot be parsed."""

    def __init__(self, line: str) -> None:
        super().__init__(line, code=USAGE)


def one_line(error: BaseException) -> str:
    """The text of an error on one line, never empty."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
