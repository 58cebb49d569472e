"""One row per key, decided by the keys alone, before the rows go through Spark.

Of a large batch, Spark's way (send every row to its key's partition, sort, number) costs as much as reading the files,
only to drop a few rows. Where the key, and the order in which one row wins, can be told of each row alone, less will
do:

    1. the workers read the files as ever, but keep the rows in scratch, as Arrow has them, and hand on only reports
    2. the driver looks at the keys, which are mapped into memory, and marks the rows to keep (`choose`)
    3. the workers hand the kept rows to Spark, without the others; or, where one row of each kind is enough for it to
       see (`alike`), they write them

The verdict on every file is known after the first step, so that a batch that has to be read again is not written first.
Whatever dies in between leaves files in the attempt's own scratch folder. A share that Spark runs twice replaces its
file with the same content. A small batch whose rows all have to go through Spark is read by one task, which does all
three at once (`AtOnce`). Keys that are computed are computed by Spark in the first step, from the columns that they
need, and left beside the rows. Keys that rows are filtered before, or too many to look at, go Spark's way (`steps`),
but only with the columns that it looks at: the others stay in scratch until the rows are written (`write_task`). Rows
that would take too much room there go Spark's way as a whole. A side input that leaves no row out is joined to the rows
that were kept; when it turns out to make several of one, the batch is made again, Spark's way.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ingestd.googlesql.functions import CHANGEFUL
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.words import named_in
from ingestd.model.preparation import Shaping
from ingestd.model.schema import Field, Mode, Schema, Type, by_name
from ingestd.spark.files.kept import Keeping, Kept
from ingestd.spark.files.reserved import REPORT
from ingestd.spark.shape import choose
from ingestd.spark.shape.choose import By, computed_file
from ingestd.spark.shape.steps import split_order

if TYPE_CHECKING:
    import pyarrow as pa

ALONE_BYTES = 16 << 20  # a smaller batch is read by one task that looks at the keys itself, in the same job
# Types whose values are equal exactly when what Arrow holds of them is.
_EXACT = {Type.INT64, Type.STRING, Type.BYTES, Type.BOOL, Type.DATE, Type.DATETIME, Type.TIMESTAMP}
_NAME = re.compile(r"(?:`?(\w+)`?\.)?`?(\w+)`?")


def keys_of(shaping: Shaping, columns: Schema) -> tuple[tuple[Field, ...], tuple[By, ...]]:
    """The columns that make the key, and those that order its rows; none when it takes more than looking at them."""
    nothing: tuple[tuple[Field, ...], tuple[By, ...]] = ((), ())
    if shaping.criteria or any(side.inner for side in shaping.side_inputs):  # they may leave out the row that wins
        return nothing
    known = by_name(columns)
    keys = [_plain_column(text, shaping, known) for text in shaping.unique_columns]
    order = []
    for text in shaping.order_by:
        expression, descending, nulls_last = split_order(text)
        if (found := _plain_column(expression, shaping, known)) is None:
            return nothing
        order.append(By(found, descending, nulls_last))
    if None in keys:
        return nothing
    return tuple(item for item in keys if item is not None), tuple(order)


def _plain_column(text: str, shaping: Shaping, known: Mapping[str, Field]) -> Field | None:
    named = _NAME.fullmatch(text.strip())
    if named is None or (named[1] and (named[1].lower() != shaping.alias.lower() or named[1].lower() in known)):
        return None
    item = known.get(named[2].lower())
    computed = {name.lower() for name in shaping.transform}
    if item is None or item.name.lower() in computed or item.mode is Mode.REPEATED or item.type not in _EXACT:
        return None
    return item


def chosen(shaping: Shaping) -> Shaping:
    """What is left to do once there is one row per key."""
    return replace(shaping, unique_columns=(), order_by=())


def alone(content: int) -> bool:
    """Whether one task is enough for rows of that size."""
    return content < ALONE_BYTES


def computable(shaping: Shaping) -> bool:
    """Whether Spark may compute the keys alone, before the rows: nothing comes before them, and twice is the same."""
    if not shaping.unique_columns or shaping.criteria or shaping.side_inputs:
        return False
    texts = (*shaping.transform.values(), *shaping.unique_columns, *shaping.order_by)
    return not named_in(texts, CHANGEFUL)


def computed_fields(keys: Sequence[SqlType], order: Sequence[tuple[SqlType, bool, bool]]) -> "Computed | None":
    """What Spark computes of each row, as columns to look at; None when it takes more than looking at them."""
    kinds = [*keys, *(kind for kind, _, _ in order)]
    if any(kind.element is not None or kind.kind not in _EXACT for kind in kinds):
        return None
    return Computed(
        tuple(Field(f"k{place}", Type(kind.kind)) for place, kind in enumerate(keys)),
        tuple(By(Field(f"o{at}", Type(kind.kind)), down, last) for at, (kind, down, last) in enumerate(order)),
    )


@dataclass(frozen=True, slots=True)
class Computed:
    """Keys that Spark computes, and the order of their rows."""

    keys: tuple[Field, ...]
    by: tuple[By, ...]


@dataclass(frozen=True, slots=True)
class KeysInto:
    """Computed keys into a file per share, beside its rows and in their order."""

    folder: str

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        place = computed_file(self.folder, 0 if context is None else context.partitionId())
        draft = place.with_suffix(f".{os.getpid()}")
        first = next(batches, None)
        if first is not None:
            with pa.OSFile(str(draft), "wb") as target, pa.ipc.new_file(target, first.schema) as kept:
                for batch in chain([first], batches):
                    kept.write_batch(batch)
            draft.replace(place)
        yield pa.record_batch([pa.array([""], pa.string())], [REPORT])


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All steps of a share in one task: where it is the only one, or rows need no marks."""

    keeping: Keeping
    kept: Kept
    keys: tuple[Field, ...] = ()
    order: tuple[int, ...] = ()
    keep_keyless: bool = False
    by: tuple[By, ...] = ()

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.share(number)

    def share(self, number: int) -> Iterator["pa.RecordBatch"]:
        if self._read(number):
            yield from self.kept.share(number)

    def read(self, numbers: Iterable[int]) -> Iterator[int]:
        """The same without handing rows on."""
        for number in numbers:
            self._read(number)
            yield number

    def _read(self, number: int) -> bool:
        reports, dropped = self.keeping.share(number), 0
        if reports is not None and self.keys:
            found = choose.mark(self.kept.folder, 1, self.keys, self.order, self.keep_keyless, self.by)
            reports, dropped = (None, 0) if found is None else (reports, found)
        draft = _told(self.kept.folder, number).with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"reports": reports, "dropped": dropped}))
        draft.replace(_told(self.kept.folder, number))
        return reports is not None


def silent(folder: str, shares: int) -> bool:
    """Whether no task of `AtOnce` has reported: Spark knew without their rows that none would be left."""
    return not any(_told(folder, number).exists() for number in range(shares))


def told(folder: str, shares: int) -> tuple[list[str], int] | None:
    """What the tasks of `AtOnce` reported, and how many rows they left out; None when one took too much room."""
    reports: list[str] = []
    dropped = 0
    for number in range(shares):
        one = json.loads(_told(folder, number).read_text())
        if one["reports"] is None:
            return None
        reports += one["reports"]
        dropped += one["dropped"]
    return reports, dropped


def _told(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.told"
