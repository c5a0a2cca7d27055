"""The checker on Spark agrees with the plain ones in every mutation, and the page says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jepsen.score.__main__ import PAGE
from tests.jepsen.score.on_spark import OnSpark
from tests.jepsen.score.page import page, wrong
from tests.jepsen.score.recording import goods
from tests.jepsen.score.scoring import copies, parts_of, plain, score

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_both_checkers_catch_every_mutation_agree_in_each_and_the_page_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = list(copies(parts_of(goods())))
    results = {"plain": score(made, plain), "Spark": score(made, OnSpark(spark, tmp_path))}
    assert wrong(results) == []
    assert PAGE.read_text() == page(results), "run make score"
