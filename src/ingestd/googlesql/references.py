"""Which names an expression uses, before anybody knows what they mean."""

from collections.abc import Iterator
from dataclasses import fields

from ingestd.googlesql import ast

# Where a function has a date part, by the end of its name.
_PARTS = {"_DIFF": 2, "_TRUNC": 1, "LAST_DAY": 1}


def children(node: object) -> Iterator[ast.Node]:
    """The nodes right below one, or in a tuple of them, in the order of the text."""
    for value in node if isinstance(node, tuple) else _parts(node):
        if isinstance(value, ast.Node):
            yield value
        elif isinstance(value, tuple):
            yield from children(value)


def _parts(node: object) -> Iterator[object]:
    if isinstance(node, ast.Node):
        yield from (getattr(node, item.name) for item in fields(node))


def walk(node: object, *, into_queries: bool = False) -> Iterator[ast.Node]:
    """A node, or those of a tuple, and all below, stopping at sub-queries unless told.

    Chains may be longer (x = 1 OR x = 2 OR …) than calls can be deep.
    """
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Query) and not into_queries:
            continue
        if isinstance(item, ast.Node):
            yield item
        waiting += reversed([*children(item)])


def columns_of(tree: ast.Node) -> list[tuple[str, ...]]:
    """The dotted names of columns that the expression uses; date parts and names of its own are none."""
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[ast.Node, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, own = waiting.pop()
        if isinstance(node, ast.Path):
            if node.parts[0].lower() not in own:
                found.append(node.parts)
            continue
        if isinstance(node, ast.Lambda):
            own |= {name.lower() for name in node.names}
        elif isinstance(node, ast.Query):
            own |= frozenset(_given(node))
        waiting += reversed([(below, own) for below in children(node) if not _is_keyword(below, node)])
    return found


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
