"""Files as producers write them."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet


def lines(rows: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out, **options)
    return out.getvalue()


def orc(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.orc.write_table(table, out, **options)
    return out.getvalue()


def avro(fields: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "r", "fields": list(fields)}, rows, codec=codec)
    return out.getvalue()
