"""Compressed files: read to their end, or not at all."""

import bz2
import gzip

import pyarrow as pa
import pytest

from ingestd.spark.files.inflate import CorruptError, inflated

TEXT = b"id,name\n1,a\n" * 50
PACKED = {
    "f.csv.gz": gzip.compress(TEXT),
    "f.csv.bz2": bz2.compress(TEXT),
    "f.csv.zst": pa.Codec("zstd").compress(TEXT, asbytes=True),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_file_that_was_cut_anywhere_yields_nothing(name: str) -> None:
    data = PACKED[name]
    assert inflated(name, data) == TEXT
    for length in range(1, len(data)):
        with pytest.raises(CorruptError):
            inflated(name, data[:length])
