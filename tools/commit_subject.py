"""The form of a commit's subject: `area: what`, at most 72 characters; the reason is in the body.

Owns the rule and the commit-msg hook that applies it; `make setup` installs the hook and the house
test checks the history. Standard library only. Must not know what a change is about.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 72

_FORM = re.compile(r"[a-z][\w/.-]*(?:, [a-z][\w/.-]*)*: \S")
_MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
_MARK = "# Installed by `make setup` of fifo; remove it and set-up puts it back.\n"
HOOK = f"""#!/bin/sh
{_MARK}root="$(git rev-parse --show-toplevel)"
exec "$root/.venv/bin/python" "$root/tools/commit_subject.py" "$1"
"""


def fault(subject: str) -> str | None:
    """Say what is wrong with a subject; None where nothing is."""
    if subject.startswith(_MADE_BY_GIT):
        return None
    if len(subject) > LONGEST:
        return f"{len(subject)} characters, at most {LONGEST}: move the reason into the body"
    if not _FORM.match(subject):
        return "begin with the area, for example `machine: count failures of a batch once`"
    return None


def install() -> None:
    """Install the hook in this checkout's repository; leave a hook of the user's alone."""
    ask = ["git", "rev-parse", "--git-path", "hooks/commit-msg"]
    try:
        answer = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return  # A source distribution has no repository to guard.
    hook = ROOT / answer.stdout.strip()
    if not hook.exists():
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text(HOOK)
        hook.chmod(0o755)
    elif _MARK not in hook.read_text(errors="replace"):
        print(f"{hook} is yours and stays; it may call tools/commit_subject.py", file=sys.stderr)


def main() -> int:
    """Check the message in the file that git names, or install the hook with `--install`."""
    if sys.argv[1:] == ["--install"]:
        install()
        return 0
    subject = Path(sys.argv[1]).read_text(encoding="utf-8").partition("\n")[0]
    wrong = fault(subject)
    if wrong is not None:
        print(f"commit subject {subject!r}: {wrong}", file=sys.stderr)
    return int(wrong is not None)


if __name__ == "__main__":
    sys.exit(main())
