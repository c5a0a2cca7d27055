"""`python -m tests.jepsen.score`: judge every mutation, print the score, write docs/checkers.md."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.jepsen.score.on_spark import OnSpark
from tests.jepsen.score.page import Results, data, page, table, wrong
from tests.jepsen.score.recording import goods, record
from tests.jepsen.score.scoring import copies, parts_of, plain, score
from tests.support.spark_session import spark_session

PAGE = Path(__file__).parents[3] / "docs" / "checkers.md"


def main() -> int:
    """The process's exit code: 1 where a mutation escaped, or an alarm was false."""
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen.score", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plain", action="store_true", help="without Spark, and no page")
    parser.add_argument("--record", action="store_true", help="first record the good runs anew")
    options = parser.parse_args()
    if options.record:
        record()
    made = list(copies(parts_of(goods())))
    results: Results = {"plain": score(made, plain)}
    if not options.plain:
        with spark_session() as spark, tempfile.TemporaryDirectory() as folder:
            results = {**results, "Spark": score(made, OnSpark(spark, Path(folder)))}
        PAGE.write_text(page(results))
    print(json.dumps(data(results), indent=2) if options.json else table(results))
    return 1 if wrong(results) else 0


if __name__ == "__main__":
    sys.exit(main())
