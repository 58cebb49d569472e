"""Reading rule expressions: sqlglot's grammar of GoogleSQL, with every function left under its own name.

What a function means is decided in `functions`; sqlglot's own idea of it would hide what was written.
"""

import re
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.bigquery import BigQuery
from sqlglot.errors import ParseError, SqlglotError

from ingestd.prepare.functions import DATE_PARTS, REGISTRY
from ingestd.prepare.values import ExpressionError

_LONG = 20_000
_SHOWN = 40  # characters before a mistake


class _GoogleSql(BigQuery):
    """BigQuery's grammar with every function left as it was written, under its own name."""

    class Parser(BigQuery.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in BigQuery.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "SAFE_CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


def google_sql() -> type[BigQuery]:
    """The grammar, for those who read more than an expression."""
    return _GoogleSql


@lru_cache(maxsize=1024)
def parse(text: str) -> exp.Expr:
    """The expression's tree; raises `ExpressionError` when it is none. The tree is shared: never change it."""
    if len(text) > _LONG:
        raise ExpressionError(f"an expression of {len(text)} characters is too long")
    _check_literals(text)
    try:
        # In parentheses nothing is a statement, and a comment at the end ends with its line.
        tree = parse_one(f"({text}\n)", read=_GoogleSql)
    except (SqlglotError, RecursionError) as error:
        raise ExpressionError(f"not a GoogleSQL expression: {_complaint(error)}") from None
    if not isinstance(tree, exp.Paren | exp.Subquery):
        raise ExpressionError("not a GoogleSQL expression")
    if isinstance(tree.this, exp.Alias):  # `a DESCC`: nothing has a name of its own here
        raise ExpressionError(f"not a GoogleSQL expression: unexpected {tree.this.alias!r} at its end")
    return tree.this if isinstance(tree, exp.Paren) else tree


# A literal, or what may look as if it had one inside.
_LITERAL = re.compile(
    r"""--[^\n]*|\#[^\n]*|/\*.*?\*/|`(?:[^`\\]|\\.)*`|"""
    r"""(?P<kind>\b(?:[rR][bB]?|[bB][rR]?))?(?P<quote>'''|\"\"\"|'|\")(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`\n]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2})|(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(.))", re.DOTALL
)


def _check_literals(text: str) -> None:
    """What sqlglot takes for a literal, and GoogleSQL does not."""
    end = -1
    for found in _LITERAL.finditer(text):
        if found["quote"] is None:
            continue
        kind = (found["kind"] or "").lower()
        if found.start() == end:
            raise ExpressionError("not a GoogleSQL expression: two literals without a space between them")
        end = found.end()
        for escape in _ESCAPE.finditer(found["text"]) if "r" not in kind else ():
            if escape[3] is not None or (escape[2] is not None and "b" in kind):
                raise ExpressionError(f"not a GoogleSQL expression: illegal escape sequence {escape[0]}")


def _complaint(error: Exception) -> str:
    """What is wrong with the text as it was written, without the parentheses around it and sqlglot's inner names."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, ParseError) or not error.errors:
        return "it cannot be read; is a quote missing?"
    first = error.errors[0]
    found, before = str(first["highlight"]), str(first["start_context"]).removeprefix("(").strip()
    ended = found == ")" and not str(first["end_context"]).strip()
    what = "it ends too early" if ended else f"unexpected {found!r} after {before[-_SHOWN:]!r}"
    wanted = str(first["description"])
    return what + (f" ({wanted[0].lower()}{wanted[1:]})" if wanted.startswith("Expect") and "<" not in wanted else "")


def columns_of(text: str) -> list[tuple[str, ...]]:
    """The dotted names of columns that the expression uses; date parts and names of its own are none."""
    tree = parse(text)
    own = {name.name.lower() for unnest in tree.find_all(exp.Unnest) for name in _names_of(unnest)}
    found = [tuple(part.name for part in node.parts) for node in tree.find_all(exp.Column) if not _is_keyword(node)]
    return [parts for parts in found if parts[0].lower() not in own]


def _names_of(unnest: exp.Unnest) -> list[exp.Expr]:
    alias, offset = unnest.args.get("alias"), unnest.args.get("offset")
    return [*(alias.columns if alias is not None else ()), *([offset] if isinstance(offset, exp.Identifier) else ())]


def _is_keyword(node: exp.Column) -> bool:
    """`DAY` of DATE_DIFF(a, b, DAY), `MONDAY` of WEEK(MONDAY), CURRENT_DATE without parentheses."""
    if len(node.parts) > 1 or node.this.args.get("quoted"):
        return False
    name, parent = node.name.upper(), node.parent
    if name.startswith("CURRENT_") and name in REGISTRY:
        return True
    if not isinstance(parent, exp.Anonymous):
        return False
    caller = str(parent.this).upper()
    return caller == "WEEK" or (
        caller.endswith(("_DIFF", "_TRUNC", "LAST_DAY")) and node is parent.expressions[-1] and name in DATE_PARTS
    )


def plain_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Kwarg):
        return f"an argument by name ({node.name} =>)"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
