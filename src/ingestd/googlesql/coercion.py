"""Literals, implicit conversion, common types and CAST: what converts to what, in whatever SQL an engine speaks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ingestd.googlesql.literals import READERS
from ingestd.googlesql.types import (
    ANY_STRUCT,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC_ORDER,
    STRING,
    SqlType,
    array_of,
    coerces,
    struct_of,
)
from ingestd.googlesql.values import Value

CIVIL = frozenset(["DATE", "DATETIME", "TIME", "TIMESTAMP"])
_EXACT = frozenset(["NUMERIC", "BIGNUMERIC"])
_Convert = Callable[[Value, SqlType], Value | None]


class Conversions(ABC):
    """GoogleSQL's rules, written for one engine, which says how it writes what conversions are made of."""

    readers: ClassVar[Mapping[str, Callable[[str], object]]] = READERS  # of text literals, by kind of type

    @abstractmethod
    def type(self, kind: SqlType) -> str:
        """The name of the type that holds it."""

    @abstractmethod
    def constant(self, value: object, kind: SqlType) -> str:
        """A Python value, which is not None."""

    @abstractmethod
    def struct(self, kind: SqlType, members: Sequence[Value]) -> str: ...

    @abstractmethod
    def field(self, value: Value, name: str) -> str: ...

    @abstractmethod
    def array(self, items: Sequence[Value], kind: SqlType) -> str: ...

    @abstractmethod
    def each(self, array: Value, convert: Callable[[Value], Value]) -> str:
        """An array with every element converted."""

    @abstractmethod
    def unless_null(self, value: Value, then: str) -> str: ...

    @abstractmethod
    def scalar(self, value: Value, target: SqlType, *, safe: bool) -> Value:
        """An explicit CAST of one scalar type to another; raises where there is none."""

    def same(self, value: Value) -> str:
        """A value cast to the type that it has."""
        return value.sql

    def literal(self, value: object, kind: SqlType) -> Value:
        """A constant of a scalar type, from its Python value."""
        if value is None:
            return replace(self.null(kind), literal=True, null=True)
        return Value(self.constant(value, kind), kind, literal=True, constant=value, simple=True)

    def null(self, kind: SqlType) -> Value:
        return Value(f"CAST(NULL AS {self.type(kind)})", kind, simple=True)

    def read(self, text: str, kind: SqlType) -> Value | None:
        """Text read as another type, as in `DATE '2024-01-01'` or `day = '2024-01-01'`; None when it is none."""
        if kind.kind not in self.readers:
            return None
        try:
            return self.literal(self.readers[kind.kind](text), kind)
        except ValueError:
            return None

    def array_value(self, items: Sequence[Value], element: SqlType) -> Value:
        kind = array_of(element)
        return Value(self.array(items, kind), kind, members=tuple(items))

    def struct_value(self, kind: SqlType, members: Sequence[Value]) -> Value:
        return Value(self.struct(kind, members), kind, members=tuple(members))

    def struct_members(self, value: Value) -> tuple[Value, ...]:
        return tuple(
            Value(self.field(value, name), kind, simple=value.simple)
            for name, (_, kind) in zip(value.type.physical_names, value.type.fields, strict=True)
        )

    def coerce(self, value: Value, target: SqlType) -> Value | None:
        """The value converted implicitly; None where GoogleSQL wants a CAST."""
        source = value.type
        if value.null:
            return self.null(target)
        if value.raises:
            return Value(f"CAST({value.constant} AS {self.type(target)})", target)
        if source == target:
            return value
        if source.kind == target.kind and ANY_STRUCT in (source, target):
            return replace(value, type=target, members=None)
        if value.literal:
            from_literal = self._coerce_literal(value, target)
            if from_literal is not None:
                return from_literal
        if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
            return self._struct(value, target, self.coerce)
        if source.kind == target.kind == "ARRAY":
            known = value.members is not None or coerces(source, target)
            return self._array(value, target, self.coerce) if known else None
        return self.cast(value, target) if coerces(source, target) else None

    def _coerce_literal(self, value: Value, target: SqlType) -> Value | None:
        if value.type is STRING and target.kind in CIVIL:
            if value.parameter:
                return self.cast(value, target)
            return self.read(value.constant, target) if isinstance(value.constant, str) else None
        if value.parameter:
            return None
        if isinstance(value.constant, int) and value.type is INT64 and target.numeric:
            return self.literal(float(value.constant) if target is FLOAT64 else value.constant, target)
        if isinstance(value.constant, float) and target.kind in _EXACT and math.isfinite(value.constant):
            return self.read(repr(value.constant), target)
        return None

    def _struct(self, value: Value, target: SqlType, convert: _Convert) -> Value | None:
        members = value.members or self.struct_members(value)
        converted = []
        for member, (_, kind) in zip(members, target.fields, strict=True):
            inner = convert(member, kind)
            if inner is None:
                return None
            converted.append(inner)
        packed = self.struct_value(target, converted)
        return packed if value.members is not None else Value(self.unless_null(value, packed.sql), target)

    def _array(self, value: Value, target: SqlType, convert: _Convert) -> Value | None:
        element = target.element
        assert element is not None
        if value.members is not None:
            converted = [convert(member, element) for member in value.members]
            found = [item for item in converted if item is not None]
            return self.array_value(found, element) if len(found) == len(converted) else None

        def one(item: Value) -> Value:
            made = convert(item, element)
            assert made is not None  # the types convert
            return made

        return Value(self.each(value, one), target)

    def supertype(self, items: Sequence[Value]) -> SqlType | None:
        """The type all of these convert to: as for CASE branches, array elements and UNION columns."""
        typed = [item for item in items if not item.null and not item.raises]
        if not typed:
            return INT64
        candidates: list[SqlType] = []
        for item in [*(item for item in typed if not item.literal or item.parameter), *typed]:
            if item.type not in candidates:
                candidates.append(item.type)
        kinds = {kind.kind for kind in candidates}
        if kinds <= NUMERIC_ORDER.keys():
            candidates.sort(key=lambda kind: NUMERIC_ORDER[kind.kind])
        for candidate in candidates:
            if all(self.coerce(item, candidate) is not None for item in typed):
                return _named_as(candidate, typed[0].type)
        if kinds <= NUMERIC_ORDER.keys():
            return FLOAT64
        if kinds == {"STRUCT"} and len({len(kind.fields) for kind in candidates}) == 1:
            return self._struct_supertype(typed, candidates[0])
        if kinds == {"ARRAY"} and all(item.members is not None for item in typed):
            inner = self.supertype([member for item in typed for member in item.members or ()])
            return array_of(inner) if inner else None
        return None

    def _struct_supertype(self, items: Sequence[Value], first: SqlType) -> SqlType | None:
        fields = []
        for index, (name, _) in enumerate(first.fields):
            inner = self.supertype([(item.members or self.struct_members(item))[index] for item in items])
            if inner is None:
                return None
            fields.append((name, inner))
        return struct_of(fields)

    def cast(self, value: Value, target: SqlType, *, safe: bool = False) -> Value:
        """An explicit CAST, or SAFE_CAST; raises `SqlError` where GoogleSQL has none."""
        source = value.type
        if value.null:
            return self.null(target)
        if source == target:
            return replace(value, sql=self.same(value), literal=False)
        if source.kind == target.kind and ANY_STRUCT in (source, target):
            return replace(value, type=target, members=None)
        if value.literal and not value.parameter:
            # A literal is taken as it is written, any other FLOAT64 as the number that it is.
            number = isinstance(value.constant, float) and target.kind in _EXACT
            text = repr(value.constant) if number else value.constant if source is STRING else None
            parsed = self.read(text, target) if isinstance(text, str) and target is not JSON else None
            if parsed is not None:
                return Value(parsed.sql, target, simple=True)

        def convert(inner: Value, kind: SqlType) -> Value:
            return self.cast(inner, kind, safe=safe)

        found: Value | None = None
        if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
            found = self._struct(value, target, convert)
        elif source.kind == target.kind == "ARRAY":
            found = self._array(value, target, convert)
        return found or self.scalar(value, target, safe=safe)


def _named_as(kind: SqlType, first: SqlType) -> SqlType:
    """The fields of a STRUCT have the names that the first of several gives them."""
    if kind.kind != "STRUCT" or len(first.fields) != len(kind.fields):
        return kind
    return struct_of((name, inner) for (name, _), (_, inner) in zip(first.fields, kind.fields, strict=True))
