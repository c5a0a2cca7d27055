"""`format("fifo")` for Spark, which finds it by the module `pyspark_fifo`, and what goes with it.

Owns the names that users import. Must not know nodes, and `import fifo` must not know it: it needs
PySpark and PyArrow (`pip install 'fifo-quorum[spark]'`), and says so where they are missing or too
old. `docs/spark.md` is its manual.
"""

from fifo.spark import requirements

requirements.check()

from fifo.spark.committing import Transaction, transaction  # noqa: E402 - checked above
from fifo.spark.errors import SourceError  # noqa: E402
from fifo.spark.inferring import infer  # noqa: E402
from fifo.spark.reservation import Acked, ack, release, renew  # noqa: E402
from fifo.spark.settling import Settled, settle  # noqa: E402
from fifo.spark.source import FifoDataSource  # noqa: E402
from fifo.spark.taking import taken  # noqa: E402

__all__ = [
    "FifoDataSource",
    "SourceError",
    "Acked",
    "Settled",
    "Transaction",
    "ack",
    "infer",
    "release",
    "renew",
    "settle",
    "taken",
    "transaction",
]
