"""`python -m bench.load`, or by spark-submit. Owns nothing but the catch of an early Ctrl-C."""

import sys

if __name__ == "__main__":
    try:
        from bench.load.command import main

        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
