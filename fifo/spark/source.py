"""The data source: what Spark asks for by the name `fifo`.

Owns nothing but the way to the four parts of the room. Made anew by Spark for every use, in
processes of its own: it keeps its options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

import fifo
from fifo.spark import columns, options, tables
from fifo.spark.bodies import typed
from fifo.spark.reading import reader_for
from fifo.spark.streaming import FifoStreamReader
from fifo.spark.writing import FifoStreamWriter, FifoWriter, see_the_queue


class FifoDataSource(DataSource):
    """`format("fifo")`, and `USING fifo` in SQL; Spark finds it by the module `pyspark_fifo`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "fifo"

    def schema(self) -> StructType:
        """The columns of every read; of a table that is created they keep its options."""
        table = options.of_table(self.options)
        if table is None:
            return _schema_of(self.options)
        return columns.table_schema(_schema_of(options.fitting(table, options.BATCH_READ)), table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        settings = options.parse(self._given(schema, options.BATCH_READ), options.BATCH_READ)
        columns.check_read_schema(schema, _schema_of(settings))
        return reader_for(settings)

    def streamReader(self, schema: StructType) -> FifoStreamReader:
        """For `spark.readStream`."""
        settings = options.parse(self._given(schema, options.STREAM_READ), options.STREAM_READ)
        columns.check_read_schema(schema, _schema_of(settings))
        return FifoStreamReader(settings)

    def writer(self, schema: StructType, overwrite: bool) -> FifoWriter:
        """For `df.write`; made once per job, on the driver."""
        _append_only(overwrite)
        settings = options.parse(self.options, options.BATCH_WRITE)
        _check_written(schema, settings)
        see_the_queue(settings)
        return FifoWriter(settings)

    def streamWriter(self, schema: StructType, overwrite: bool) -> FifoStreamWriter:
        """For `df.writeStream`; made once per batch, on the driver."""
        settings = options.parse(self.options, options.STREAM_WRITE)
        _append_only(overwrite)
        _check_written(schema, settings)
        if settings.id_column is not None or settings.report_queue is not None:
            see_the_queue(settings)
        return FifoStreamWriter(settings)

    def _given(self, schema: StructType, use: str) -> dict[str, str]:
        """The options of this use, above those of the table where it is one."""
        table = columns.table_options(schema) or {}
        return {**options.fitting(table, use), **self.options}


def _schema_of(given: Mapping[str, str] | options.Settings) -> StructType:
    """The columns of messages, or of a system table."""
    if isinstance(given, options.Settings):
        table, binary_keys, body = given.table, given.binary_keys, given.body
        names = given.columns
    else:
        table, binary_keys = options.system_table(given), options.binary_keys(given)
        body, names = options.body(given), options.columns_of(given)
    if table is not None:
        return tables.schema_of(table)
    return typed.read_schema(columns.read_schema(binary_keys=binary_keys, names=names), body)


def _check_written(schema: StructType, settings: options.Settings) -> None:
    sent = typed.written_schema(columns.sent(schema, settings.id_column), settings.body)
    columns.check_written(sent, settings.id_column)


def _append_only(overwrite: bool) -> None:
    if overwrite:
        raise fifo.InvalidArgument(
            'a queue can only be appended to: use .mode("append"), or .outputMode("append") on a'
            " stream; fifo queue purge empties one"
        )
