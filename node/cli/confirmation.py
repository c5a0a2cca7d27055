"""Confirmation of commands that lose something: a prompt at a terminal, ``--yes`` elsewhere.

Owns the option and the prompt. Must not know what is lost; the command says it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from node.cli.errors import UsageProblem

Yes = Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")]


def confirm(consequence: str, question: str) -> None:
    """Ask whether the consequence is wanted.

    Raises `typer.Abort` where the answer is no, and UsageProblem where no terminal can answer.
    """
    if not sys.stdin.isatty():
        raise UsageProblem(f"{consequence}; confirm with --yes")
    typer.confirm(f"{consequence}. {question}", abort=True, err=True)
