"""The data source that PySpark finds without being asked: `format("fifo")`, `USING fifo`.

Owns the name alone: Spark imports every module whose name begins with `pyspark_` and registers its
`DefaultSource`. Where PySpark or PyArrow is too old there is none, so that no other source suffers.
Must not know more than where the data source is.
"""

import contextlib

with contextlib.suppress(ImportError):
    from fifo.spark import FifoDataSource as DefaultSource

__all__ = ["DefaultSource"]
