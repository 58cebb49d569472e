"""GoogleSQL's types, and which convert to which without a CAST. How an engine holds a value is the engine's own."""

from collections.abc import Iterable
from dataclasses import dataclass

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError, UnsupportedSql
from ingestd.model.schema import ALIASES


@dataclass(frozen=True, slots=True)
class SqlType:
    """`kind` is GoogleSQL's name of the type; ARRAY and RANGE have an element, a STRUCT has fields (maybe unnamed)."""

    kind: str
    element: "SqlType | None" = None
    fields: tuple[tuple[str, "SqlType"], ...] = ()

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.kind}<{self.element}>"
        if self.kind == "STRUCT":
            return "STRUCT<" + ", ".join(f"{name} {kind}".strip() for name, kind in self.fields) + ">"
        return self.kind

    @property
    def physical_names(self) -> tuple[str, ...]:
        """Names of a STRUCT's members in an engine, which wants them present and unique."""
        names: list[str] = []
        taken: set[str] = set()
        for position, (name, _) in enumerate(self.fields, 1):
            chosen = name if name and name.lower() not in taken else f"_field_{position}"
            taken.add(chosen.lower())
            names.append(chosen)
        return tuple(names)

    def member(self, name: str) -> tuple[str, "SqlType"] | None:
        """The physical name and type of a STRUCT's member; names ignore case."""
        lowered = name.lower()
        for physical, (own, kind) in zip(self.physical_names, self.fields, strict=True):
            if own.lower() == lowered:
                return physical, kind
        return None

    @property
    def numeric(self) -> bool:
        return self.kind in NUMERIC_ORDER

    @property
    def ordered(self) -> bool:
        """Whether `<` takes it."""
        return self.kind not in ("STRUCT", "ARRAY", "RANGE", "JSON", "GEOGRAPHY")

    @property
    def comparable(self) -> bool:
        """Whether `=` takes it."""
        return self.ordered or self.kind in ("STRUCT", "RANGE")


SCALARS = {
    kind: SqlType(kind)
    for kind in (
        "INT64", "FLOAT64", "NUMERIC", "BIGNUMERIC", "BOOL", "STRING", "BYTES", "DATE", "TIME", "DATETIME", "TIMESTAMP",
        "INTERVAL", "JSON", "GEOGRAPHY",
    )
}  # fmt: skip
INT64, FLOAT64, NUMERIC, BIGNUMERIC = (SCALARS[kind] for kind in ("INT64", "FLOAT64", "NUMERIC", "BIGNUMERIC"))
BOOL, STRING, BYTES, JSON = (SCALARS[kind] for kind in ("BOOL", "STRING", "BYTES", "JSON"))
DATE, TIME, DATETIME, TIMESTAMP = (SCALARS[kind] for kind in ("DATE", "TIME", "DATETIME", "TIMESTAMP"))
INTERVAL, GEOGRAPHY = SCALARS["INTERVAL"], SCALARS["GEOGRAPHY"]
ANY_STRUCT = SqlType("STRUCT")  # one whose fields are not known: it fits every other
NUMERIC_ORDER = {"INT64": 0, "NUMERIC": 1, "BIGNUMERIC": 2, "FLOAT64": 3}


def array_of(element: SqlType) -> SqlType:
    return SqlType("ARRAY", element)


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))


def coerces(source: SqlType, target: SqlType) -> bool:
    """Whether any value of `source` (not only a literal) becomes one of `target` without a CAST."""
    if source == target:
        return True
    if source.numeric and target.numeric:
        return NUMERIC_ORDER[source.kind] < NUMERIC_ORDER[target.kind]
    if source.kind == "DATE" and target.kind == "DATETIME":
        return True
    if source.kind == target.kind == "STRUCT" and ANY_STRUCT in (source, target):
        return True
    if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        return all(coerces(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True))
    if source.kind == target.kind == "ARRAY" and source.element is not None and target.element is not None:
        return source.element == target.element or (
            source.element.kind == target.element.kind == "STRUCT" and coerces(source.element, target.element)
        )
    return False


# What a type may become on its way into a column without losing anything; text is parsed, or the batch fails.
_HOLDS: dict[str, frozenset[str]] = {
    "INT64": frozenset(["NUMERIC", "BIGNUMERIC", "FLOAT64", "STRING"]),
    "NUMERIC": frozenset(["BIGNUMERIC", "STRING"]),
    "BIGNUMERIC": frozenset(["STRING"]),
    "FLOAT64": frozenset(["STRING"]),
    "BOOL": frozenset(["STRING"]),
    "DATE": frozenset(["DATETIME", "TIMESTAMP", "STRING"]),
    "DATETIME": frozenset(["TIMESTAMP", "STRING"]),
    "TIMESTAMP": frozenset(["DATETIME", "STRING"]),
    "TIME": frozenset(["STRING"]),
    "STRING": frozenset(["INT64", "FLOAT64", "NUMERIC", "BIGNUMERIC", "BOOL", "DATE", "TIME", "DATETIME", "TIMESTAMP"]),
}
_WIDE = frozenset(["STRING", "FLOAT64", "NUMERIC", "BIGNUMERIC", "TIMESTAMP", "DATETIME"])


def holds(column: str, value: str) -> bool:
    """Whether a column of this kind holds any value of that one, exactly."""
    return column == value or column in _HOLDS.get(value, ())


def is_wide(column: str) -> bool:
    """Whether a computed value is cast to this kind of column."""
    return column in _WIDE


def from_node(node: ast.TypeNode) -> SqlType:
    """The type an expression of this written type has (length and precision do not matter there)."""
    if node.name == "ARRAY":
        assert node.element is not None
        element = from_node(node.element)
        if element.kind == "ARRAY":
            raise SqlError("Arrays of arrays are not supported")
        return array_of(element)
    if node.name == "STRUCT":
        return struct_of((item.name, from_node(item.type)) for item in node.fields)
    if node.name == "RANGE":
        assert node.element is not None
        return SqlType("RANGE", from_node(node.element))
    return SCALARS[scalar_name(node.name)]


def scalar_name(name: str) -> str:
    known = ALIASES.get(name, name)
    if known in SCALARS:
        return known
    if known in ("PROTO", "ENUM", "UUID", "TOKENLIST"):
        raise UnsupportedSql(f"the type {known}")
    raise SqlError(f"Type not found: {name}")
