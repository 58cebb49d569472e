"""Bombs: a few bytes that claim gigabytes are refused before they take memory; honest files that compress well load."""

import bz2
import gc
import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from tests.support import files

from ingestd.formats.avro import read_avro
from ingestd.formats.avrofile import Block, Container
from ingestd.formats.binary import UnreadableFileError
from ingestd.formats.columnar import read_orc, read_parquet
from ingestd.formats.inflation import Inflation
from ingestd.formats.options import LoadOptions, SourceFormat
from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.model.preparation import BadData
from ingestd.model.schema import Field, Type
from ingestd.spark.files import inflate
from ingestd.spark.files.read_task import Reading, Report, Unit, Worker
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.shape import plans

MIB = 1 << 20
SMALL = Inflation(free=8 * MIB, ratio=100)
OPTIONS = LoadOptions(inflation=SMALL)
REFUSED = "grow to more than 8,388,608"


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def gzip_bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), mtime=0)


CODECS: list[Any] = [
    pytest.param(gzip.compress, id="gzip"),
    pytest.param(bz2.compress, id="bzip2"),
    pytest.param(zstd, id="zstd"),
]


class Memory:
    """How much memory this process took at most since then."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        self._before = self._read("VmRSS")

    @staticmethod
    def _read(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))

    @property
    def grown(self) -> int:
        return self._read("VmHWM") - self._before


@pytest.mark.parametrize("compress", CODECS)
def test_a_compressed_bomb_is_refused_after_what_it_may_have(compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(64 * MIB))
    taken = 0
    with pytest.raises(inflate.CorruptError, match=f"its {len(bomb):,} bytes {REFUSED}"):
        for chunk in inflate.chunks(bomb, SMALL):
            assert len(chunk) <= MIB
            taken += len(chunk)
    assert taken <= 8 * MIB


@pytest.mark.parametrize("compress", CODECS)
def test_pieces_put_together_are_the_content(compress: Callable[[bytes], bytes]) -> None:
    """Of any size around a piece's, of several members, and of a file that is cut."""
    for size in (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB):
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert b"".join(inflate.chunks(compress(data))) == data
    two = compress(b"first\n") + compress(bytes(2 * MIB))
    if compress is not zstd:
        assert b"".join(inflate.chunks(two + b"\0\0")) == b"first\n" + bytes(2 * MIB)
    with pytest.raises(inflate.CorruptError):
        list(inflate.chunks(compress(bytes(2 * MIB))[:-9]))


@pytest.mark.parametrize("compress", CODECS)
def test_an_honest_file_of_equal_rows_loads(compress: Callable[[bytes], bytes]) -> None:
    """Three hundred megabytes of one row over and over, in some kilobytes, with the default bound."""
    rows = b'{"id": 1, "name": "the same row again"}\n' * 20_000
    data = compress(rows * 400) if compress is zstd else compress(rows) * 400
    assert len(data) * 250 < 400 * len(rows)
    assert sum(map(len, inflate.chunks(data))) == 400 * len(rows)


def test_the_head_of_a_bomb_takes_no_more_than_a_head() -> None:
    compressor = bz2.BZ2Compressor(9)
    bomb = b"".join(compressor.compress(bytes(16 * MIB)) for _ in range(16)) + compressor.flush()
    memory = Memory()
    assert plans.beginning(bomb, len(bomb)) == b""
    assert memory.grown < 64 * MIB


def test_gunzip_in_the_local_cloud_is_bounded_too() -> None:
    with pytest.raises(CorruptGzipError, match=REFUSED):
        gunzip("gs://b/a.csv.gz", gzip_bomb(64 * MIB), SMALL)
    data = b"row\n" * 5_000_000
    assert gunzip("gs://b/a.csv.gz", gzip.compress(data) + gzip.compress(b"end\n") + b"\0") == data + b"end\n"
    with pytest.raises(CorruptGzipError, match="unexpected end"):
        gunzip("gs://b/a.csv.gz", gzip.compress(data)[:-4])


def avro(rows: int, size: int, codec: str) -> bytes:
    return Container.parse(files.avro([{"name": "a", "type": "string"}], [{"a": "x" * size}] * rows)).build(codec)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_avro_blocks_are_bounded_together(codec: str) -> None:
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_avro(avro(600, 100_000, codec), LoadOptions(inflation=Inflation(free=8 * MIB, ratio=2)))
    assert read_avro(avro(60, 100_000, codec), OPTIONS).rows == 60


def test_a_snappy_block_is_refused_by_the_size_it_claims() -> None:
    head = avro(1, 1, "null")
    container = Container.parse(head)
    lies = b"\xff\xff\xff\xff\x07" + b"\0" * 8  # 2 GiB
    start = head.index(container.sync) + 16
    block = b"\x02" + bytes([2 * len(lies)]) + lies + container.sync
    bomb = head[:start].replace(b"\x08null", b"\x0csnappy") + block
    memory = Memory()
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_avro(bomb, OPTIONS)
    assert memory.grown < 64 * MIB


def test_avro_rows_without_values_are_counted() -> None:
    written = files.avro([{"name": "a", "type": ["null", "string"]}], [{"a": None}])
    bare = Container.parse(written.replace(b'["null", "string"]', b'"null"            '))
    endless = Container(bare.metadata, bare.sync, (Block(2**40, b""),)).build()
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_avro(endless, OPTIONS)


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    return files.parquet(pa.table(columns), **options)


def repeated(value: Any, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))


BOMBS: list[Any] = [
    pytest.param({"a": repeated("x" * 500_000, 10_000)}, {}, id="a long value in a dictionary"),
    pytest.param({"a": repeated(b"x" * 500_000, 10_000)}, {}, id="bytes"),
    pytest.param(
        {"a": pa.ListArray.from_arrays(pa.array(range(10_001), pa.int32()), repeated("x" * 500_000, 10_000))},
        {},
        id="in a list",
    ),
    pytest.param({"a": pa.array([7] * 4_000_000)}, {}, id="a run of numbers"),
    pytest.param(
        {"a": pa.array(["x" * MIB] * 40)}, {"use_dictionary": False, "compression": "zstd"}, id="a compressed page"
    ),
]


@pytest.mark.parametrize(("columns", "options"), BOMBS)
def test_parquet_is_bounded_in_what_it_becomes(columns: dict[str, Any], options: dict[str, Any]) -> None:
    bomb = parquet(columns, **options)
    assert len(bomb) < 2**16
    memory = Memory()
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_parquet(bomb, OPTIONS)
    assert memory.grown < 64 * MIB


def test_honest_parquet_with_one_long_value_among_many_short_ones_loads() -> None:
    """Its longest value in every row would be far too much, and it is in one."""
    words = ["short"] * 20_000 + ["x" * 200_000]
    nested = [["a", "b"]] * 20_000 + [["x" * 200_000]]
    found = read_parquet(parquet({"a": words, "l": nested, "n": range(20_001)}), OPTIONS)
    assert found.arrays[0].to_pylist() == words
    assert found.rows == 20_001
    assert found.arrays[1].to_pylist()[-1] == {"list": [{"element": "x" * 200_000}]}
    constant = read_parquet(parquet({"a": ["the same"] * 200_000, "n": [1] * 200_000}), OPTIONS)
    assert constant.rows == 200_000


def test_orc_is_bounded_in_what_it_becomes() -> None:
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_orc(files.orc(pa.table({"a": pa.array([7] * 4_000_000)}), compression="zlib"), OPTIONS)
    assert read_orc(files.orc(pa.table({"a": pa.array([7] * 400_000)}), compression="zlib"), OPTIONS).rows == 400_000


def test_a_long_word_in_every_row_of_an_orc_stripe_is_refused_before_the_stripe_is_decoded() -> None:
    out = io.BytesIO()
    writer = orc.ORCWriter(out, dictionary_key_size_threshold=1.0, stripe_size=1 << 30, compression="zlib")
    for _ in range(60):
        writer.write(pa.table({"a": ["x" * MIB] * 10}))
    writer.close()
    assert orc.ORCFile(pa.BufferReader(out.getvalue())).nstripes == 1
    memory = Memory()
    with pytest.raises(UnreadableFileError, match=REFUSED):
        read_orc(out.getvalue(), OPTIONS)
    assert memory.grown < 256 * MIB  # of six hundred


def reports(kind: SourceFormat, name: str, data: bytes) -> list[Report]:
    plan = ReadPlan((Field("a", Type.STRING),), LoadOptions(source_format=kind, inflation=SMALL))
    worker = Worker(Reading(plan, BadData.FAIL), "0")
    batches = [*worker.take(Unit(0, name, length=len(data)), data), *worker.finish()]
    texts = [text for batch in batches for text in batch.column(batch.num_columns - 1).to_pylist() if text]
    return [Report.parse(text) for text in texts]


@pytest.mark.parametrize("kind", [SourceFormat.CSV, SourceFormat.JSON])
def test_a_worker_sets_a_bomb_aside_with_the_reason(kind: SourceFormat) -> None:
    bomb = gzip_bomb(256 * MIB)
    memory = Memory()
    (report,) = reports(kind, "gs://b/bomb.gz", bomb)
    assert report.whole and "spark.inflated_size" in report.why
    assert memory.grown < 128 * MIB
    (report,) = reports(kind, "gs://b/good.gz", gzip.compress(b'{"a": "x"}\n' if kind is SourceFormat.JSON else b"x\n"))
    assert (report.rows, report.whole) == (1, False)


def test_a_line_without_end_is_refused_before_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_LONGEST_LINE", 4 * MIB)
    endless = zlib.compress(b"x" * 64 * MIB, wbits=31)
    with pytest.raises(inflate.CorruptError, match="a line has more than"):
        list(inflate.lines(inflate.chunks(endless), MIB))
