"""`python -m bench.peers.debian FOLDER`: RabbitMQ of another release of Debian, as programs.

Owns how a release that this machine does not run becomes a folder of programs for `bench.peers
--rabbitmq`: its packages are unpacked below that folder (mmdebstrap, no script of a package runs),
and each program is a script that enters it, in a mount namespace of its own. Needs root. The
folder is all that there is of it: remove it, and it is gone.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("rabbitmq-server", "rabbitmqctl")
INSIDE: Final = "/usr/lib/rabbitmq/bin"
"""Where Debian puts the scripts that do not ask for a certain user."""

SHARED: Final = "/proc /dev"
"""Of this machine, seen inside; and the folder of the run, which is the programs' HOME."""

SCRIPT: Final = """\
#!/bin/sh
# Becomes {program} of the release below {root}.
export LC_ALL=C.UTF-8 HOME="${{HOME:-/root}}"
exec unshare --mount sh -c '
  root=$1 program=$2
  shift 2
  for place in {shared} "$HOME"; do
    mkdir -p "$root$place" && mount --rbind "$place" "$root$place" || exit 1
  done
  exec chroot "$root" "$program" "$@"
' sh {root} {inside}/{program} "$@"
"""

TOOLS: Final = ("mmdebstrap", "unshare", "chroot", "mount")

MERGED: Final = ("bin", "sbin", "lib", "lib64")
"""Links to the same names below `usr`: Debian makes them outside of its packages."""

FILES: Final = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
}
"""Files that scripts of packages would have written."""


def unpack(suite: str, root: Path, mirror: str | None) -> None:
    """Unpack RabbitMQ of a release and all that it needs. Raises CalledProcessError."""
    command = [
        "mmdebstrap",
        "--variant=extract",
        "--include=?essential",
        "--include=rabbitmq-server",
        suite,
        str(root),
    ]
    subprocess.run([*command, *([mirror] if mirror else [])], check=True)
    for name in MERGED:
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def write_programs(folder: Path, root: Path) -> None:
    """Write the scripts that enter it."""
    for program in PROGRAMS:
        script = folder / program
        script.write_text(
            SCRIPT.format(
                program=program, root=shlex.quote(str(root)), inside=INSIDE, shared=SHARED
            )
        )
        script.chmod(0o755)


def main(arguments: list[str] | None = None) -> int:
    """Make the folder; 1 and a line on stderr where something is missing or fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.debian", description=__doc__)
    parser.add_argument("folder", type=Path, help="a new one: about 200 MB")
    parser.add_argument("--suite", default="trixie", help="the release; trixie has RabbitMQ 4.0")
    parser.add_argument("--mirror", help="where its packages are, if not at Debian's own address")
    options = parser.parse_args(arguments)
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        print(f"{missing[0]} is not installed: apt-get install mmdebstrap", file=sys.stderr)
        return 1
    if options.folder.exists():
        print(f"{options.folder} exists already: give a new folder", file=sys.stderr)
        return 1
    folder = options.folder.resolve()
    folder.mkdir(parents=True)
    try:
        unpack(options.suite, folder / "root", options.mirror)
    except subprocess.CalledProcessError as error:
        print(f"{options.suite} was not unpacked: {error}", file=sys.stderr)
        shutil.rmtree(folder)
        return 1
    write_programs(folder, folder / "root")
    print(f"python -m bench.peers --rabbitmq {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
