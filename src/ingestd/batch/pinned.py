"""What a batch remembers of its preparation, so that whoever continues loads the very same prepared files.

The attempt's number is in the saved record before the attempt begins, and the manifest's outputs before the first of
them is loaded: a second attempt never shares a folder with the first, and a load job never reads files of another
attempt than the record says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ingestd.model.preparation import BadFile, Output, Prepared
from ingestd.model.schema import Field

HOME = -1  # the destination itself, as opposed to a branch of a split
UNMATCHED = -2  # no table: rows that fit no branch, which are counted


@dataclass(frozen=True, slots=True)
class Pour:
    """One load job over prepared files of one output: URIs `first` up to `last`, and how far it got."""

    output: int  # its place in the manifest
    first: int
    last: int
    job: int
    failures: int = 0  # times in a row that its job failed for a moment
    rows: int | None = None  # what the proven job has loaded
    size: int = 0

    @property
    def done(self) -> bool:
        return self.rows is not None


@dataclass(frozen=True, slots=True)
class Pinned:
    """The manifest of the attempt that counts, and the jobs that load it."""

    prepared: Prepared
    pours: tuple[Pour, ...] = ()

    @property
    def rows(self) -> int:
        return sum(output.rows for output in self.prepared.outputs)

    def output(self, pour: Pour) -> Output:
        return self.prepared.outputs[pour.output]

    def branch(self, pour: Pour) -> int:
        return self.output(pour).branch

    def uris(self, pour: Pour) -> list[str]:
        return list(self.output(pour).uris[pour.first : pour.last])

    def landed(self, branch: int) -> int:
        """Rows of one target that proven jobs have loaded."""
        return sum(pour.rows or 0 for pour in self.pours if self.branch(pour) == branch)

    def with_pour(self, pour: Pour) -> Self:
        pours = tuple(pour if (one.output, one.first) == (pour.output, pour.first) else one for one in self.pours)
        return replace(self, pours=pours)

    def to_json(self) -> dict[str, Any]:
        made = self.prepared
        return {
            "Attempt": made.attempt,
            "Format": made.format,
            "Schema": [column.rest() for column in made.schema],
            "Outputs": [
                {"Branch": one.branch, "URIs": list(one.uris), "Rows": one.rows, "Bytes": one.size}
                for one in made.outputs
            ],
            "BadRows": {str(bad.index): {"Rows": bad.rows, "Why": bad.why} for bad in made.bad if bad.loaded},
            "Added": [column.rest() for column in made.added],
            "Relaxed": list(made.relaxed),
            "RowsRead": made.rows_read,
            "RowsLeftOut": dict(made.rows_left_out),
            "Rejected": list(made.rejected),
            "LoadOptions": dict(made.load_options),
            "Pours": [
                {
                    "Output": pour.output,
                    "First": pour.first,
                    "Last": pour.last,
                    "Job": pour.job,
                    "Failures": pour.failures,
                    "Rows": pour.rows,
                    "Bytes": pour.size,
                }
                for pour in self.pours
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        made = Prepared(
            attempt=document["Attempt"],
            format=document["Format"],
            schema=tuple(Field.from_rest(column, verbatim=True) for column in document["Schema"]),
            outputs=tuple(
                Output(item["Branch"], tuple(item["URIs"]), item["Rows"], item["Bytes"]) for item in document["Outputs"]
            ),
            bad=tuple(
                BadFile(int(index), item["Why"], rows=item["Rows"], loaded=True)
                for index, item in document["BadRows"].items()
            ),
            added=tuple(Field.from_rest(column, verbatim=True) for column in document["Added"]),
            relaxed=tuple(document["Relaxed"]),
            rows_read=document["RowsRead"],
            rows_left_out=document["RowsLeftOut"],
            rejected=tuple(document["Rejected"]),
            load_options=document["LoadOptions"],
        )
        pours = tuple(
            Pour(
                item["Output"], item["First"], item["Last"], item["Job"], item["Failures"], item["Rows"], item["Bytes"]
            )
            for item in document["Pours"]
        )
        return cls(made, pours)


@dataclass(frozen=True, slots=True)
class Published:
    """A target that has its rows, for good: proven, and never written again by this batch."""

    branch: int
    table: str
    rows: int | None  # where the job tells
    job_id: str

    def __str__(self) -> str:
        return self.table if self.rows is None else f"{self.table} ({self.rows} rows)"

    def to_json(self) -> dict[str, Any]:
        return {"Branch": self.branch, "Table": self.table, "Rows": self.rows, "JobID": self.job_id}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Self:
        return cls(item["Branch"], item["Table"], item["Rows"], item["JobID"])
