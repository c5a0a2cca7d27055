"""The Spark session that the tests of the checker and of the load job share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session that all of these tests share."""
    with spark_session() as session:
        yield session
