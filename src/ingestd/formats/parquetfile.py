"""Parquet's row groups as Arrow tables, bounded in what they may grow to.

Parquet does not only compress: a dictionary says a long value once, and a run says it a million times, in a few bytes.
So three things are looked at, each before it takes memory: what the footer says of values of fixed size; the longest
value of a dictionary, where many rows may refer to it; and every batch of rows as it comes. Columns whose dictionary
could grow too far are read as references first, counted, and only then written out.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ingestd.formats.inflation import Budget, Inflation

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS = 16_384
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


class ParquetRows:
    """One file; raises `InflationError`."""

    def __init__(self, data: bytes | memoryview, bound: Inflation) -> None:
        self._data = data
        self._budget = bound.budget(len(data))
        self.file = self._open()
        _declared(self.file.metadata, bound.budget(len(data)))
        lazy = self._far_reaching()
        self._lazily = self._open(lazy) if lazy else None

    def _open(self, references: Sequence[str] = ()) -> "pq.ParquetFile":
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = pa.BufferReader(self._data)
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", read_dictionary=list(references) or None)

    def groups(self, numbers: list[int], columns: list[str] | None) -> "pa.Table":
        """These row groups; `columns`: only those."""
        import pyarrow as pa

        empty = self.file.read_row_groups([], columns=columns)
        if not numbers or columns == []:
            return self.file.read_row_groups(numbers, columns=columns)
        return pa.concat_tables([empty, *self._batches(numbers, columns, empty.schema)])

    def _batches(self, numbers: list[int], columns: list[str] | None, schema: "pa.Schema") -> Iterator["pa.Table"]:
        import pyarrow as pa

        file = self._lazily or self.file
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=numbers, columns=columns):
            self._budget.take(sum(map(_size, batch.columns)))
            table = pa.Table.from_batches([batch])
            yield table if self._lazily is None else table.cast(schema)

    def _far_reaching(self) -> list[str]:
        """Columns of text in which a long value of the dictionary could stand in very many rows."""
        metadata, left = self.file.metadata, self._budget.left
        found: dict[str, None] = {}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                path = column.path_in_schema
                if path in found or column.physical_type != "BYTE_ARRAY" or _DICTIONARIES.isdisjoint(column.encodings):
                    continue
                may_grow = column.num_values * max(column.total_uncompressed_size, 1) > left
                if may_grow and column.num_values * self._longest(number, path) > left:
                    found[path] = None
        return list(found)

    def _longest(self, group: int, path: str) -> int:
        """The longest value of the column's dictionary, which comes whole with its first row."""
        import pyarrow.compute as pc

        rows = self._open([path]).iter_batches(batch_size=1, row_groups=[group], columns=[path], use_threads=False)
        array = next(iter(rows)).column(0)
        while hasattr(array, "flatten") and not hasattr(array, "dictionary"):
            parts = array.flatten()
            array = parts[0] if isinstance(parts, list) else parts
        if not hasattr(array, "dictionary") or not len(array.dictionary):
            return 0
        return int(pc.max(pc.binary_length(array.dictionary)).as_py() or 0)


def _declared(metadata: "pq.FileMetaData", budget: Budget) -> None:
    """What the footer admits: it may lie, but then the batches tell."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            budget.take(max(column.num_values * _WIDTHS.get(column.physical_type, 0), column.total_uncompressed_size))


def _size(array: "pa.Array") -> int:
    """Bytes of the array once references to a dictionary are written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.DictionaryArray):
        lengths = pc.binary_length(array.dictionary)
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0) + 4 * len(array)
    if isinstance(array, pa.StructArray):
        return sum(map(_size, array.flatten())) + len(array) // 8
    if isinstance(array, pa.MapArray):
        return _size(array.keys) + _size(array.items) + 4 * len(array)
    if isinstance(array, (pa.ListArray, pa.LargeListArray)):
        return _size(array.flatten()) + 4 * len(array)
    return int(array.nbytes)
