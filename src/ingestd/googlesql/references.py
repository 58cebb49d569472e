"""Which names an expression uses, before anybody knows what they mean."""

from collections.abc import Iterator
from dataclasses import fields

from ingestd.googlesql import ast

# Where a function has a date part, by the end of its name.
_PARTS = {"_DIFF": 2, "_TRUNC": 1, "LAST_DAY": 1}


def children(node: ast.Node) -> Iterator[ast.Node]:
    """The nodes right below one, in the order of the text."""
    for item in fields(node):
        yield from _nodes(getattr(node, item.name))


def _nodes(value: object) -> Iterator[ast.Node]:
    if isinstance(value, ast.Node):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _nodes(one)


def columns_of(tree: ast.Node) -> list[tuple[str, ...]]:
    """The dotted names of columns that the expression uses; date parts and names of its own are none."""
    return list(_columns(tree, frozenset()))


def _columns(node: ast.Node, own: frozenset[str]) -> Iterator[tuple[str, ...]]:
    if isinstance(node, ast.Path):
        if node.parts[0].lower() not in own:
            yield node.parts
        return
    if isinstance(node, ast.Lambda):
        own |= {name.lower() for name in node.names}
    elif isinstance(node, ast.Query):
        own |= frozenset(_given(node))
    for below in children(node):
        if not _is_keyword(below, node):
            yield from _columns(below, own)


def _given(node: ast.Node) -> Iterator[str]:
    """The names that a sub-select gives to the elements of arrays and to their places."""
    if isinstance(node, ast.Unnest):
        yield from (name.lower() for name in (node.alias, node.offset) if name)
    for below in children(node):
        if isinstance(below, ast.Select | ast.TableExpression):
            yield from _given(below)


def _is_keyword(node: ast.Node, above: ast.Node) -> bool:
    """`DAY` of DATE_DIFF(a, b, DAY), `MONDAY` of WEEK(MONDAY)."""
    if isinstance(above, ast.Extract):
        return node is above.part
    if not isinstance(above, ast.Call) or not isinstance(node, ast.Path) or len(node.parts) > 1 or node.quoted:
        return False
    place = next((place for end, place in _PARTS.items() if above.name.endswith(end)), len(above.args))
    return above.name == "WEEK" or node in above.args[place : place + 1]
