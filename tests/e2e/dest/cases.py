"""The table of cases: a rule, files and tables before, and the tables afterwards. Data only; see `stage` for the doing.

In a case's texts `DS` is the case's own dataset, `PROJECT`, `TRIGGER` and `OPS` the world's project and buckets. Files
lie under a folder of the case's own, which its rule takes. A value `ANY` stands for any value but NULL.

On Spark, cases whose files BigQuery loads as they are would be the same once more: BigQuery's engine alone has them.
"""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from ingestd.rules.schema import RuleSpec
from ingestd.spark.start import wants_spark

FOLDER = Path(__file__).parent / "cases"
ENGINES = ("bigquery", "spark")


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is there before: columns as `tests.support.tables.columns` reads them."""

    schema: str
    rows: tuple[Mapping[str, Any], ...] = ()
    partition: str | None = None  # a column, or empty: by arrival
    cluster: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    dataset: str
    rules: tuple[dict[str, Any], ...]
    files: Mapping[str, bytes]
    expect: Mapping[str, list[dict[str, Any]]]
    tables: Mapping[str, Table] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)  # in the operations bucket
    kept: tuple[str, ...] = ()  # files that are still there afterwards
    like: Mapping[str, str] = field(default_factory=dict)  # tables made like others
    expires: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    loose: bool = False  # the last rows count, others may have come before them

    def __str__(self) -> str:
        return f"{self.dataset} {self.name}"


def load_cases(engine: str, project: str, trigger: str, ops: str) -> list[Case]:
    return [
        _case(document, mode, engine, dataset, {"DS": dataset, "PROJECT": project, "TRIGGER": trigger, "OPS": ops})
        for document, mode, dataset in _runs(engine)
    ]


def names(engine: str) -> list[str]:
    return [f"{document['name']} ({mode})" for document, mode, _ in _runs(engine)]


def _runs(engine: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    number = 0
    for file in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load(file.read_text()):
            number += 1
            # Where a case does not say, sync and async take turns; on Spark they do so always, which saves minutes.
            turn = ["sync" if number % 2 else "async"]
            for mode in turn if engine == "spark" else document.get("modes") or turn:
                if engine in document.get("engines", ENGINES) and (engine != "spark" or _on_spark(document)):
                    yield document, mode, f"c{number:03d}{mode[0]}"


def _on_spark(document: dict[str, Any]) -> bool:
    rules = [document["rule"], *document.get("more_rules", ())]
    return any(wants_spark(RuleSpec.model_validate(rule), "spark") for rule in rules)


def _case(document: dict[str, Any], mode: str, engine: str, dataset: str, words: dict[str, str]) -> Case:
    text = json.dumps({key: value for key, value in document.items() if key not in ("name", "modes", "files")})
    for word, value in words.items():
        text = text.replace(word, value)
    filled = json.loads(text)
    rule = {
        "When": {"Prefix": f"/{dataset}/"},
        "Async": mode == "async",
        "Engine": engine,
        "OnSuccess": [{"Action": "delete"}],
        **filled["rule"],
    }
    more = [{"Async": mode == "async", "Engine": engine, **one} for one in filled.get("more_rules", ())]
    return Case(
        name=f"{document['name']} ({mode})",
        dataset=dataset,
        rules=(rule, *more),
        files={f"{dataset}/{name}": _content(name, rows) for name, rows in document["files"].items()},
        expect=filled["expect"],
        tables={name: _table(**one) for name, one in filled.get("tables", {}).items()},
        objects=filled.get("objects", {}),
        kept=tuple(f"{dataset}/{name}" for name in filled.get("kept", ())),
        like=filled.get("like", {}),
        expires=tuple(filled.get("expires", ())),
        missing=tuple(filled.get("missing", ())),
        loose=filled.get("loose", False),
    )


def _table(schema: str, rows: Any = (), partition: str | None = None, cluster: Any = ()) -> Table:
    return Table(schema, tuple(rows), partition, tuple(cluster))


def _content(name: str, rows: Any) -> bytes:
    if isinstance(rows, str):
        return rows.encode()
    if name.endswith(".parquet"):
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        return buffer.getvalue()
    text = "\n".join(json.dumps(row) for row in rows).encode()
    return gzip.compress(text) if name.endswith(".gz") else text
