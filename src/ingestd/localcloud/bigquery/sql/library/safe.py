"""Error-free variants: SAFE. functions, SAFE_CAST and SAFE_DIVIDE answer NULL where the function itself would fail.

DuckDB's TRY does this, but refuses aggregates, window functions, subqueries and volatile functions inside. Those are
computed outside, as GoogleSQL also has it: only the function is safe, not its arguments.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ingestd.googlesql import ast
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.registry import Call, Handler

# What the compiler writes for them; a match inside a string literal costs nothing but speed.
_UNTRIABLE = re.compile(
    r"\(SELECT |\) OVER \(|\b(?:random|uuid|sum|count|avg|min|max|any_value|arg_max_null|arg_min_null|bool_and|bool_or|"
    r"bit_and|bit_or|bit_xor|stddev_samp|stddev_pop|var_samp|var_pop|corr|covar_pop|covar_samp|list|quantile_cont|"
    r"quantile_disc|histogram|grouping|row_number|rank)\("
)


def _outside(value: Value) -> bool:
    return _UNTRIABLE.search(value.sql) is not None


def attempt(c: ExpressionCompiler, values: Sequence[Value], build: Callable[[list[Value]], Value]) -> Value:
    """`build` of the values, NULL when it fails."""
    if not any(map(_outside, values)):
        result = build(list(values))
        return Value(f"TRY({result.sql})", result.type)
    row = f"_s{c.collected.alias()}"
    packed, inside = [], []
    for index, value in enumerate(values):
        if not _outside(value):
            inside.append(value)
            continue
        packed.append(f"a{index} := {value.sql}")
        inside.append(Value(f"struct_extract({row}, {string_sql(f'a{index}')})", value.type))
    result = build(inside)
    return Value(f"list_transform([struct_pack({', '.join(packed)})], lambda {row}: TRY({result.sql}))[1]", result.type)


def attempt_call(call: Call, handler: Handler) -> Value:
    """SAFE.f(…): arguments that TRY refuses are named, and the function sees the names."""
    values: dict[str, Value] = {}
    written: list[ast.Expression] = []
    for index, item in enumerate(call.nodes):
        plain = isinstance(item, ast.Path | ast.Literal | ast.Lambda | ast.IntervalValue)
        value = None if plain else call.value(index)
        if value is None or not _outside(value):
            written.append(item)
            continue
        values[f"_safe{index}"] = value
        written.append(ast.Path(item.pos, (f"_safe{index}",)))
    changed = replace(call.node, args=tuple(written), safe=False)

    def build(inside: list[Value]) -> Value:
        return handler(Call(call.compiler, changed, call.scope.inside(dict(zip(values, inside, strict=True)))))

    return attempt(call.compiler, list(values.values()), build)
