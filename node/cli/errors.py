"""How the command line fails: one line that says what to do, and an exit code.

Owns the error a command raises on purpose and the translation of the client's errors into such
lines. Must not print; `node.cli.main` does.
"""

from __future__ import annotations

FAILED = 1
"""Exit code of a command that was understood and failed."""

USAGE = 2
"""Exit code of a command line that could not be understood."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it: 128 + SIGINT."""


class CliError(Exception):
    """A failure with its one line for stderr. ``code`` is the exit code, 1 or 2."""

    def __init__(self, line: str, *, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


class UsageProblem(CliError):
    """The arguments make no sense together, or one has a value nobody can read."""

    def __init__(self, line: str) -> None:
        super().__init__(line, code=USAGE)


def one_line(error: BaseException) -> str:
    """The text of an error on one line, never empty."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
