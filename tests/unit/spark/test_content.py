"""What is in packed files, guessed from their beginnings and footers."""

import bz2
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from tests.support.files import avro, lines, orc, parquet

from ingestd.formats.options import LoadOptions
from ingestd.spark.files.content import guess
from ingestd.spark.files.read_task import Unit
from ingestd.spark.files.readers import ReadPlan

ROWS: list[dict[str, Any]] = [{"id": n, "name": f"name {n % 10}"} for n in range(20_000)]
LINES = lines(ROWS)


def guessed(folder: Path, kind: str, contents: dict[str, bytes]) -> int:
    units = []
    pack = folder / "pack"
    with pack.open("wb") as file:
        for index, (name, data) in enumerate(contents.items()):
            units.append(Unit(index, name, str(pack), file.tell(), len(data)))
            file.write(data)
    return guess(ReadPlan((), LoadOptions.from_rest({"sourceFormat": kind})), units)


def packed(kind: str) -> bytes:
    if kind == "AVRO":
        return avro([{"name": "id", "type": "long"}, {"name": "name", "type": "string"}], ROWS, "deflate")
    table = pa.Table.from_pylist(ROWS)
    return parquet(table) if kind == "PARQUET" else orc(table, compression="zstd")


def test_lines_are_what_they_are(tmp_path: Path) -> None:
    assert guessed(tmp_path, "NEWLINE_DELIMITED_JSON", {"a": LINES, "b": b"", "c": b"{}"}) == len(LINES) + 2
    assert guessed(tmp_path, "CSV", {}) == 0


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("times", [1, 8])
def test_compressed_lines_grow_as_their_beginning_does(tmp_path: Path, pack: Any, times: int) -> None:
    data = pack(LINES * times)
    found = guessed(
        tmp_path, "NEWLINE_DELIMITED_JSON", {"a.gz" if pack is gzip.compress else "a.bz2": data, "b": b"{}"}
    )
    assert 0.2 < found / (len(LINES) * times) < 1.2


@pytest.mark.parametrize("kind", ["AVRO", "PARQUET", "ORC"])
def test_files_of_columns_grow_to_about_their_columns(tmp_path: Path, kind: str) -> None:
    data = packed(kind)
    there = pa.Table.from_pylist(ROWS).nbytes
    found = guessed(tmp_path, kind, dict.fromkeys("abcde", data))
    assert 0.4 < found / (5 * there) < 2
    assert found > 5 * len(data)


@pytest.mark.parametrize("kind", ["NEWLINE_DELIMITED_JSON", "AVRO", "PARQUET", "ORC"])
@pytest.mark.parametrize(
    "data", [b"Obj\x01", b"PAR1 not PAR1", b"\x1f\x8b", b"ORC", b"Obj\x01\x02\x14avro.codec\x0edeflate\x00"]
)
def test_a_broken_file_is_no_larger_than_it_is(tmp_path: Path, kind: str, data: bytes) -> None:
    most = 4 if kind == "NEWLINE_DELIMITED_JSON" else 1
    assert len(data) <= guessed(tmp_path, kind, {"a": data}) <= most * len(data)


def test_of_a_bomb_a_bounded_piece_is_looked_at(tmp_path: Path) -> None:
    data = gzip.compress(b"0" * (300 << 20), 1)
    assert guessed(tmp_path, "CSV", {"a.gz": data}) > 64 << 20
