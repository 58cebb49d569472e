"""A directory whose rows a Spark statement makes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingestd.batch.stages.prepare import _queried
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.model.preparation import BadFile, Prepared, PrepareRequest


async def test_a_file_that_is_gone_is_named_and_not_said_to_be_there() -> None:
    async def query(sql: str, request: PrepareRequest) -> Prepared:
        return Prepared(1, "PARQUET", (), (), (BadFile(0, "gone", missing=True),))

    parts = SimpleNamespace(spark_sql=SimpleNamespace(query=query))
    record = SimpleNamespace(success=SimpleNamespace(sql="SELECT 1"))
    drive = cast("Any", SimpleNamespace(parts=parts, record=record))
    file = FileVersion(ObjectRef("b", "d/t/x.csv"), Generation(1))
    request = PrepareRequest("e", 1, ObjectRef("b", "s"), (file,), {}, ())
    with pytest.raises(BadInput, match=r"are gone or were overwritten, e\.g\. gs://b/d/t/x\.csv"):
        await _queried(drive, request)
