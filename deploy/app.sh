#!/bin/sh
# Put fifo with all that it needs into ROOT/usr/lib/fifo, and its command into ROOT/usr/bin: from
# this checkout and from wheels whose hashes requirements.lock pins. The same checkout gives the same
# bytes: no byte code, no records of pip, times of SOURCE_DATE_EPOCH.
#
#     deploy/app.sh ROOT
set -eu
root=${1:?usage: deploy/app.sh ROOT}
here=$(cd "$(dirname "$0")/.." && pwd)
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
: "${PYTHON:=python3}"
export SOURCE_DATE_EPOCH PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$PYTHON" -m pip --quiet wheel --no-deps --wheel-dir "$work/own" "$here" "$here/packaging/server"
"$PYTHON" "$here/deploy/locked.py" "$here/requirements.lock" "$work/others" "$work"/own/*.whl

lib=$root/usr/lib/fifo
mkdir -p "$lib" "$root/usr/bin"
"$PYTHON" -m pip --quiet --disable-pip-version-check install --root-user-action ignore --no-deps --no-index --no-compile --target "$lib" \
    "$work"/own/*.whl "$work"/others/*.whl
rm -rf "$lib/bin"
# pip writes where a wheel came from, a folder that is gone.
find "$lib" -name direct_url.json -delete
find "$lib" -name RECORD -exec sed -i '/direct_url\.json/d; /__pycache__/d; /^\.\.\/\.\.\/bin\//d' {} +
cat > "$root/usr/bin/fifo" <<'LAUNCHER'
#!/usr/bin/python3 -IB
import os
import sys

sys.path.insert(0, "/usr/lib/fifo")
# Nodes and workers that this process starts have to find it as well, and leave no byte code there.
given = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = "/usr/lib/fifo" + (os.pathsep + given if given else "")
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
from fifo.__main__ import main

sys.exit(main())
LAUNCHER
chmod 755 "$root/usr/bin/fifo"
find "$root/usr/lib/fifo" "$root/usr/bin/fifo" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
