"""`python -m bench.demo`. Owns nothing but the catch: imports take half a second, and a user who
presses Ctrl-C then gets a quiet end too.
"""

import sys

if __name__ == "__main__":
    try:
        from bench.demo.command import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
