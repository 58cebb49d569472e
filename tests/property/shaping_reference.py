"""Random shapings over random rows, and what they come to by plain Python: the judge of both engines.

An expression is generated together with the function that computes it, so the reference shares no code with any
translator. Orders are total, so that exactly one answer is right.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from ingestd.model.preparation import Branch, Shaping, Unmatched

Row = dict[str, Any]
Compute = Callable[[Row], Any]

SCHEMA = "k INTEGER, a INTEGER, b INTEGER, s STRING, u STRING, f BOOLEAN"
COLUMNS = ("k", "a", "b", "s", "u", "f")
_WORDS = ["", "a", "b", "ab", "Ab ", " x y", "zz-9", "it's", 'q"q', "back\\slash", "100%", "Ünï"]


@dataclass(frozen=True, slots=True)
class Expression:
    sql: str
    compute: Compute


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows, what is asked for, and what comes of it: by branch (-1 the destination) and how many are left out."""

    rows: tuple[Row, ...]
    shaping: Shaping
    expected: Mapping[int, list[Row]]
    unmatched: int

    @property
    def branches(self) -> int:
        return len(self.shaping.branches)


def sample(seed: int) -> Sample:
    return _Dice(seed).sample()


class _Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sample(self) -> Sample:
        rows = self._rows()
        transform = {name: self._column(name) for name in self._random.sample(COLUMNS[1:], self._random.randint(0, 4))}
        criteria = self._bool(2) if self._random.random() < 0.5 else None
        keys = self._random.choice([(), ("k",), ("k", "s")])
        rest = [name for name in COLUMNS if name not in keys]
        order = [(name, self._random.random() < 0.5) for name in self._random.sample(rest, len(rest))] if keys else []
        branches = [self._bool(2) for _ in range(self._random.choice([0, 0, 1, 3]))]
        every = self._random.random() < 0.3
        unmatched = self._random.choice([Unmatched.KEEP, Unmatched.DROP])
        shaping = Shaping(
            transform={name: one.sql for name, one in transform.items()},
            criteria=criteria.sql if criteria else "",
            unique_columns=keys,
            order_by=tuple(f"{name} {'DESC' if down else 'ASC'}" for name, down in order),
            branches=tuple(Branch(one.sql) for one in branches),
            every_branch=every,
            unmatched=unmatched,
        )
        kept = [row for row in rows if criteria is None or criteria.compute(row) is True]
        shaped = [{**row, **{name: one.compute(row) for name, one in transform.items()}} for row in kept]
        expected, count = _split(_unique(shaped, keys, order), branches, every, unmatched)
        return Sample(tuple(rows), shaping, expected, count)

    def _rows(self) -> list[Row]:
        pick = self._random.choice
        found = [
            {
                "k": pick([None, 1, 2, 3, 4, 5]),
                "a": pick([None, -7, 0, 1, 2, 10**12]),
                "b": pick([None, -2, 0, 3]),
                "s": pick([None, *_WORDS]),
                "u": pick([None, *_WORDS]),
                "f": pick([None, True, False]),
            }
            for _ in range(self._random.randint(1, 25))
        ]
        return found + [dict(row) for row in self._random.sample(found, len(found) // 3)]

    def _column(self, name: str) -> Expression:
        return {"a": self._int, "b": self._int, "f": self._bool}.get(name, self._text)(3)

    def _int(self, depth: int) -> Expression:
        if depth == 0:
            return self._random.choice([_named("a"), _named("b"), _named("k"), _literal(self._random.randint(-9, 9))])
        x, y = self._int(depth - 1), self._int(depth - 1)
        small = self._random.randint(1, 7)
        return self._random.choice(
            [
                lambda: Expression(f"({x.sql} + {y.sql})", _strict(lambda p, q: p + q, x, y)),
                lambda: Expression(f"({x.sql} - {y.sql})", _strict(lambda p, q: p - q, x, y)),
                lambda: Expression(f"({x.sql} * {small})", _strict(lambda p: p * small, x)),
                lambda: Expression(f"ABS({x.sql})", _strict(abs, x)),
                lambda: Expression(f"MOD({x.sql}, {small})", _strict(lambda p: _remainder(p, small), x)),
                lambda: Expression(f"GREATEST({x.sql}, {y.sql})", _strict(max, x, y)),
                lambda: Expression(f"LEAST({x.sql}, {y.sql})", _strict(min, x, y)),
                lambda: _first("COALESCE", x, y),
                lambda: _first("IFNULL", x, y),
                lambda: self._conditional(x, y, depth),
                lambda: _measured(self._text(depth - 1)),
                lambda: Expression(f"NULLIF({x.sql}, {y.sql})", lambda row: _nullif(x.compute(row), y.compute(row))),
            ]
        )()

    def _text(self, depth: int) -> Expression:
        if depth == 0:
            return self._random.choice([_named("s"), _named("u"), _literal(self._random.choice(_WORDS))])
        x, y = self._text(depth - 1), self._text(depth - 1)
        start, length = self._random.randint(1, 4), self._random.randint(0, 3)
        old = self._random.choice(["a", "b", " ", "x"])
        return self._random.choice(
            [
                lambda: Expression(f"UPPER({x.sql})", _strict(str.upper, x)),
                lambda: Expression(f"LOWER({x.sql})", _strict(str.lower, x)),
                lambda: Expression(f"TRIM({x.sql})", _strict(lambda p: p.strip(" "), x)),
                lambda: Expression(f"CONCAT({x.sql}, {y.sql})", _strict(lambda p, q: p + q, x, y)),
                lambda: Expression(
                    f"SUBSTR({x.sql}, {start}, {length})", _strict(lambda p: p[start - 1 : start - 1 + length], x)
                ),
                lambda: Expression(f"REPLACE({x.sql}, '{old}', '_')", _strict(lambda p: p.replace(old, "_"), x)),
                lambda: Expression(f"REVERSE({x.sql})", _strict(lambda p: p[::-1], x)),
                lambda: _first("COALESCE", x, y),
                lambda: self._conditional(x, y, depth),
                lambda: _printed(self._int(depth - 1)),
            ]
        )()

    def _bool(self, depth: int) -> Expression:
        if depth == 0:
            return _named("f")
        x, y = self._int(depth - 1), self._int(depth - 1)
        s, word = self._text(depth - 1), self._random.choice(_WORDS)
        p, q = self._bool(depth - 1), self._bool(depth - 1)
        return self._random.choice(
            [
                lambda: Expression(f"({x.sql} < {y.sql})", _strict(lambda m, n: m < n, x, y)),
                lambda: Expression(f"({x.sql} >= {y.sql})", _strict(lambda m, n: m >= n, x, y)),
                lambda: Expression(f"({x.sql} BETWEEN -1 AND 3)", _strict(lambda m: -1 <= m <= 3, x)),
                lambda: Expression(f"({s.sql} = {_quoted(word)})", _strict(lambda m: m == word, s)),
                lambda: Expression(f"({s.sql} IN ('a', 'b', 'zz-9'))", _strict(lambda m: m in ("a", "b", "zz-9"), s)),
                lambda: Expression(f"STARTS_WITH({s.sql}, 'a')", _strict(lambda m: m.startswith("a"), s)),
                lambda: Expression(f"({x.sql} IS NULL)", lambda row: x.compute(row) is None),
                lambda: Expression(f"({p.sql} IS NOT TRUE)", lambda row: p.compute(row) is not True),
                lambda: Expression(f"(NOT {p.sql})", _strict(lambda m: not m, p)),
                lambda: Expression(f"({p.sql} AND {q.sql})", lambda row: _and(p.compute(row), q.compute(row))),
                lambda: Expression(f"({p.sql} OR {q.sql})", lambda row: _or(p.compute(row), q.compute(row))),
            ]
        )()

    def _conditional(self, x: Expression, y: Expression, depth: int) -> Expression:
        test = self._bool(depth - 1)
        sql = self._random.choice(["IF({0}, {1}, {2})", "CASE WHEN {0} THEN {1} ELSE {2} END"])
        return Expression(
            sql.format(test.sql, x.sql, y.sql),
            lambda row: x.compute(row) if test.compute(row) is True else y.compute(row),
        )


def _named(name: str) -> Expression:
    return Expression(f"t.{name}", lambda row: row[name])


def _literal(value: Any) -> Expression:
    sql = _quoted(value) if isinstance(value, str) else f"({value})" if value < 0 else str(value)
    return Expression(sql, lambda row: value)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _strict(fn: Callable[..., Any], *inputs: Expression) -> Compute:
    """NULL in, NULL out."""

    def compute(row: Row) -> Any:
        values = [one.compute(row) for one in inputs]
        return None if any(value is None for value in values) else fn(*values)

    return compute


def _first(function: str, x: Expression, y: Expression) -> Expression:
    def compute(row: Row) -> Any:
        value = x.compute(row)
        return y.compute(row) if value is None else value

    return Expression(f"{function}({x.sql}, {y.sql})", compute)


def _measured(text: Expression) -> Expression:
    return Expression(f"LENGTH({text.sql})", _strict(len, text))


def _printed(number: Expression) -> Expression:
    return Expression(f"CAST({number.sql} AS STRING)", _strict(str, number))


def _remainder(value: int, divisor: int) -> int:
    """With the sign of the dividend, as SQL has it."""
    return abs(value) % divisor * (1 if value >= 0 else -1)


def _nullif(x: Any, y: Any) -> Any:
    return None if x is not None and x == y else x


def _and(p: bool | None, q: bool | None) -> bool | None:
    if p is False or q is False:
        return False
    return None if p is None or q is None else True


def _or(p: bool | None, q: bool | None) -> bool | None:
    if p is True or q is True:
        return True
    return None if p is None or q is None else False


def _unique(rows: list[Row], keys: tuple[str, ...], order: list[tuple[str, bool]]) -> list[Row]:
    if not keys:
        return rows

    def compare(one: Row, two: Row) -> int:
        for name, down in order:
            # NULL is the least of all values.
            left, right = ((row[name] is not None, row[name] if row[name] is not None else 0) for row in (one, two))
            if left != right:
                return (1 if left > right else -1) * (-1 if down else 1)
        return 0

    first: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=cmp_to_key(compare)):
        first.setdefault(tuple(row[key] for key in keys), row)
    return list(first.values())


def _split(
    rows: list[Row], branches: list[Expression], every: bool, unmatched: Unmatched
) -> tuple[dict[int, list[Row]], int]:
    found: dict[int, list[Row]] = {number: [] for number in range(-1, len(branches))}
    count = 0
    for row in rows:
        fits = [number for number, one in enumerate(branches) if one.compute(row) is True]
        for number in fits if every else fits[:1]:
            found[number].append(row)
        if not fits and (not branches or unmatched is Unmatched.KEEP):
            found[-1].append(row)
        elif not fits:
            count += 1
    return found, count
