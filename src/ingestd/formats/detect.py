"""Schema auto-detection of CSV and JSON, by BigQuery's documented rules.

BigQuery samples up to 500 rows of one random file; here it is the first files in name order until 500 rows are seen, so
that the answer is always the same.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from ingestd.formats.convert import NumberText, read_float, read_int
from ingestd.formats.delimited import Cells, Dialect, Malformed
from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import CharacterMap, LoadOptions
from ingestd.formats.temporal import UnreadableError, parse_date, parse_time, parse_timestamp
from ingestd.model.schema import Field, Mode, Schema, Type

SAMPLE_ROWS = 500
DELIMITERS = (",", "|", "\t")
_GENERATED = {Type.FLOAT64: "double"}
_HAS_TIME = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}[ tT]\d{1,2}:", re.ASCII)


def text_type(text: str) -> Type:
    """The narrowest type that text can have."""
    if text.lower() in ("true", "false"):
        return Type.BOOL
    for kind, read in (
        (Type.INT64, read_int),
        (Type.FLOAT64, read_float),
        (Type.DATE, parse_date),
        (Type.TIME, parse_time),
    ):
        if _reads(read, text):
            return kind
    if _HAS_TIME.match(text) and _reads(parse_timestamp, text):
        return Type.TIMESTAMP
    return Type.STRING


def _reads(read: Any, text: str) -> bool:
    try:
        read(text)
    except UnreadableError:
        return False
    return True


def _merge(left: Type | None, right: Type) -> Type:
    if left is None or left is right:
        return right
    pair = {left, right}
    if pair == {Type.INT64, Type.FLOAT64}:
        return Type.FLOAT64
    if pair == {Type.DATE, Type.TIMESTAMP}:
        return Type.TIMESTAMP
    return Type.STRING


def column_name(name: str, mapping: CharacterMap) -> str:
    """A column name that a file brings along, made fit for a table or refused."""
    name = name.strip()
    if mapping is CharacterMap.V1:
        clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return "_" + clean if clean[:1].isdigit() else clean
    if re.search(r'[!"$()*,./;?@\[\\\]^`{}~]', name) or len(name) > 300:
        if mapping is CharacterMap.STRICT:
            raise BigQueryError(
                "invalid", f'Invalid field name "{name}". Fields must contain only letters, numbers and underscores.'
            )
        return re.sub(r'[!"$()*,./;?@\[\\\]^`{}~]', "_", name)
    return name


@dataclass(frozen=True, slots=True)
class CsvShape:
    """What detection found: the separator, the schema, and how many records to skip in each file."""

    delimiter: str
    schema: Schema
    skip: int


def choose_delimiter(options: LoadOptions, texts: Iterable[str]) -> str:
    """The given separator, or of comma, pipe and tab the one that makes the most equal columns."""
    if options.delimiter is not None or not options.autodetect:
        return options.delimiter or ","
    best, best_columns = ",", 1
    sample = list(texts)
    for delimiter in DELIMITERS:
        widths = {len(cells) for cells in _sample(Dialect(options, delimiter), sample) if isinstance(cells, list)}
        if len(widths) == 1 and (columns := widths.pop()) > best_columns:
            best, best_columns = delimiter, columns
    return best


def _sample(dialect: Dialect, texts: Iterable[str]) -> list[Cells | Malformed]:
    records = chain.from_iterable(dialect.records(text) for text in texts)
    return [cells for _, cells in islice(records, SAMPLE_ROWS)]


def detect_csv(options: LoadOptions, texts: Sequence[str]) -> CsvShape:
    delimiter = choose_delimiter(options, texts)
    dialect = Dialect(options, delimiter)
    asked = options.skip_leading_rows
    lead = max((asked or 0) - 1, 0)
    rows: list[Cells] = []
    for text in texts:
        # The row that may be a header counts in the first file only.
        first = lead + 1 if rows else lead
        records = islice(dialect.records(text), first, first + SAMPLE_ROWS + 1)
        rows += [cells for _, cells in records if isinstance(cells, list)]
        if len(rows) > SAMPLE_ROWS:
            break
    if not rows:
        return CsvShape(delimiter, (), asked or 0)
    head, body = rows[0], rows[1 : SAMPLE_ROWS + 1]
    is_header = asked != 0 and _is_header(head, body)
    data = body if is_header or asked else rows[:SAMPLE_ROWS]
    width = max(map(len, data or [head]))
    kinds = _column_types(data, width)
    names: list[str] = []
    for index, kind in enumerate(kinds):
        given = (head[index] or "") if is_header and index < len(head) else ""
        name = column_name(given, options.character_map) if given else ""
        names.append(_unique(name or f"{_GENERATED.get(kind, kind.lower())}_field_{index}", names))
    schema = tuple(Field(name, kind) for name, kind in zip(names, kinds, strict=True))
    return CsvShape(delimiter, schema, asked if asked is not None else int(is_header))


def _unique(name: str, taken: list[str]) -> str:
    lowered = {other.lower() for other in taken}
    candidate, number = name, 0
    while candidate.lower() in lowered:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _is_header(head: Cells, body: list[Cells]) -> bool:
    """A first row of strings alone above rows that are not."""
    if any(cell is None or text_type(cell) is not Type.STRING for cell in head):
        return False
    return any(kind is not Type.STRING for kind in _column_types(body, max(map(len, body), default=0)))


def _column_types(rows: list[Cells], width: int) -> list[Type]:
    kinds: list[Type | None] = [None] * width
    for cells in rows:
        for index, cell in enumerate(cells):
            if cell is not None and kinds[index] is not Type.STRING:
                kinds[index] = _merge(kinds[index], text_type(cell))
    return [kind or Type.STRING for kind in kinds]


class _Shape:
    """What is known of one JSON field so far."""

    __slots__ = ("kind", "members", "repeated")

    def __init__(self) -> None:
        self.kind: Type | None = None
        self.members: dict[str, _Shape] = {}
        self.repeated = False

    def see(self, value: Any, path: str) -> None:
        if isinstance(value, list):
            self.repeated = True
            for item in value:
                self._see_one(item, path)
        else:
            self._see_one(value, path)

    def _see_one(self, value: Any, path: str) -> None:
        if value is None:
            return
        if isinstance(value, list):
            raise BigQueryError("invalid", f"Nested arrays not allowed. Field: {path}")
        if isinstance(value, dict):
            kind = Type.STRUCT
            see_members(self.members, value, path + ".")
        elif isinstance(value, bool):
            kind = Type.BOOL
        elif isinstance(value, int):
            kind = Type.INT64 if -(2**63) <= value < 2**63 else Type.FLOAT64
        elif isinstance(value, float | NumberText):
            kind = Type.FLOAT64
        else:
            kind = text_type(str(value))
        if Type.STRUCT in (kind, self.kind) and self.kind not in (None, kind):
            raise BigQueryError(
                "invalid", f"Invalid schema update. Field {path} has changed type from {self.kind} to {kind}"
            )
        self.kind = _merge(self.kind, kind)

    def field(self, name: str, path: str) -> Field:
        mode = Mode.REPEATED if self.repeated else Mode.NULLABLE
        if self.kind is Type.STRUCT:
            if not self.members:
                raise BigQueryError("invalid", f"Unsupported empty struct type for field '{path}'")
            return Field(name, Type.STRUCT, mode, fields_of(self.members, path + "."))
        return Field(name, self.kind or Type.STRING, mode)


def see_members(members: dict[str, _Shape], value: dict[str, Any], prefix: str) -> None:
    for key, item in value.items():
        found = members.get(key) or next(
            (shape for name, shape in members.items() if name.lower() == key.lower()), None
        )
        if found is None:
            found = members[key] = _Shape()
        found.see(item, prefix + key)


def fields_of(members: dict[str, _Shape], prefix: str) -> Schema:
    return tuple(shape.field(column_name(name, CharacterMap.STRICT), prefix + name) for name, shape in members.items())


def detect_json(rows: Iterable[Any]) -> Schema:
    """The schema of up to 500 JSON rows, fields in the order they first appear."""
    members: dict[str, _Shape] = {}
    for row in islice(rows, SAMPLE_ROWS):
        if isinstance(row, dict):
            see_members(members, row, "")
    return fields_of(members, "")


def hive_type(values: Iterable[str]) -> Type:
    """INT64, DATE or TIMESTAMP when every value of a key is one, else STRING."""
    merged: Type | None = None
    for value in values:
        kind = text_type(value)
        merged = _merge(merged, kind if kind in (Type.INT64, Type.DATE, Type.TIMESTAMP) else Type.STRING)
    return merged or Type.STRING
