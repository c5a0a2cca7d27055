"""`python -m bench.check`. Owns nothing but the catch: imports take half a second, and a user who
presses Ctrl-C then gets a quiet end too.
"""

import sys

if __name__ == "__main__":
    try:
        from bench.check.command import main

        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
