#!/bin/sh
# Prints a Python that can make the project's environment: $PYTHON if it is set, else the first of the
# usual names that is 3.11 or newer and able to make one (Debian leaves that to a package of its own).
# A name that is only a version manager's shim fails when it is run, so each candidate is run.
for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
        >/dev/null 2>&1; then
        echo "$candidate"
        exit 0
    fi
    if [ "$candidate" = "${PYTHON:-}" ]; then
        echo "PYTHON=$candidate is not a Python 3.11 or newer that can make a virtual environment" >&2
        exit 1
    fi
done
echo "no Python 3.11 or newer with venv found: install one (Debian: apt-get install python3-venv)," \
    "or name it with make PYTHON=..." >&2
exit 1
