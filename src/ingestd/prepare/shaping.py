"""What happens to a batch's rows on Spark, in this order: join, transform, criteria, one row per key, split.

The reader hands over the good rows of a batch in one frame: the files' columns, typed as `spark_type` says, and the
bookkeeping columns `FILE` and `LINE`. `shape` answers with one frame as well, so that every target is written in one
pass: the destination's columns in its order and, when the rows are split, the column `BRANCH` (the branch's number, or
-1 for the destination itself), by which the writer partitions. Nothing runs here: the caller's write does it all, and
`Shaped.left_out()` then tells how many rows each step dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingestd.model.preparation import Shaping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "_ingestd_file"  # INT: the file's place in the request
LINE = "_ingestd_line"  # BIGINT: the row's place in its file, rising; any rising number will do
BRANCH = "_ingestd_branch"  # INT: where the row goes
UNKNOWN = "_ingestd_unknown"  # STRING: JSON object of what a row has and the schema has not; NULL when nothing
HOME = -1  # the destination itself

Field = Mapping[str, Any]  # a column in BigQuery's REST form


@dataclass(frozen=True, slots=True)
class SideFrame:
    """The rows of one side input and their columns (REST form)."""

    frame: "DataFrame"
    schema: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Shaped:
    """One frame for all targets. `left_out` may be called after the write: rows dropped, by reason."""

    frame: "DataFrame"
    schema: tuple[Field, ...]  # the columns of the frame that belong to the destination, REST form
    branches: bool  # whether the frame has the column BRANCH
    left_out: Callable[[], dict[str, int]]  # criteria, duplicate, unmatched


def shape(
    frame: "DataFrame",
    shaping: Shaping,
    *,
    source: Sequence[Field],
    destination: Sequence[Field],
    sides: Mapping[str, SideFrame] | None = None,
    file_order: Sequence[int] = (),
) -> Shaped:
    """The shaped rows of `frame`, whose columns are `source`.

    `destination` is empty when the table is made from the rows. `sides` has a frame for every side input, by alias.
    `file_order[i]` ranks file `i`: event time, then name (empty: by index); the highest is the newest.
    Raises `BadInput` for what cannot work, by name.
    """
    raise NotImplementedError
