"""What stands in a text, by its tokens: enough where nobody needs its tree, and for whole scripts.

Of a text that cannot be read everything is said that would be safe: whoever runs it tells what is wrong with it.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice, pairwise

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.lexer import Source, Token, scan, tokenize
from ingestd.googlesql.parser import parse_order


@lru_cache(maxsize=512)
def _tokens(text: str) -> tuple[Token, ...] | None:
    try:
        return tuple(tokenize(Source(text)))
    except SqlError:
        return None


def named_in(texts: Iterable[str], names: Collection[str]) -> set[str]:
    """Those of the names that stand in one of the texts; strings, comments and parameters are no names."""
    words: set[str] = set()
    for text in texts:
        tokens = _tokens(text)
        if tokens is None:
            return set(names)
        words.update(word for token in tokens for word in _words(token))
    return {name for name in names if name.lower() in words}


def _words(token: Token) -> list[str]:
    if token.kind == "name":
        return [token.text.lower()]
    return token.text.lower().split(".") if token.kind == "quoted" else []


def parameters_in(text: str, names: Collection[str]) -> set[str]:
    """Those of the named parameters that the text has."""
    tokens = _tokens(text)
    if tokens is None:
        return set(names)
    used = {token.text.lower() for token in tokens if token.kind == "param"}
    return {name for name in names if name.lower() in used}


def qualifies(name: str, text: str) -> bool:
    """Whether the name stands before a dot: `name.column`."""
    tokens = _tokens(text)
    lowered = name.lower()
    return tokens is None or any(lowered in _words(one) and two.upper == "." for one, two in pairwise(tokens))


def paths_in(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """The dotted names without back-ticks that are no function's, and where each begins and ends."""
    tokens = _tokens(text) or ()
    at = 0
    while at < len(tokens):
        first = last = at
        while tokens[last].kind == "name" and [one.upper for one in tokens[last + 1 : last + 2]] == ["."]:
            if tokens[last + 2].kind != "name":
                break
            last += 2
        at = last + 1
        alone = first == 0 or tokens[first - 1].upper not in (".", "@")
        if tokens[first].kind == "name" and alone and tokens[at].upper not in ("(", "."):
            names = tuple(one.text for one in tokens[first : last + 1 : 2])
            yield tokens[first].pos, tokens[last].end, names


def split_order(text: str) -> tuple[str, bool, bool]:
    """One ORDER BY expression, whether it descends, and whether NULLs come last; raises `SqlError`."""
    try:
        order = parse_order(text)
    except RecursionError:
        raise SqlError("nested too deeply") from None
    if len(order) != 1:
        raise SqlError("more than one expression")
    (one,) = order
    return text[one.pos : one.end], one.desc, one.nulls == "LAST" if one.nulls else one.desc


def returns_rows(sql: str) -> bool:
    """Whether a statement is a query; only its beginning is read, so that it may be of another dialect."""
    try:
        first = next(token for token in scan(Source(sql)) if token.upper != "(")
    except (SqlError, StopIteration):
        return False
    return first.kind == "name" and first.upper in ("SELECT", "WITH", "FROM")


def is_script(sql: str) -> bool:
    """Whether a text has more than one statement: something besides further semicolons follows one."""
    tokens = _tokens(sql)
    return tokens is None or any(
        one.upper == ";" and two.upper != ";" and two.kind != "end" for one, two in pairwise(tokens)
    )


def transactions(sql: str) -> tuple[tuple[int, float], ...]:
    """The lines on which transactions of a script begin and are committed."""
    found: list[tuple[int, float]] = []
    source, tokens = Source(sql), _tokens(sql) or ()
    for one, two in zip(tokens, islice(tokens, 1, None), strict=False):
        if one.kind != "name" or (two.upper not in ("TRANSACTION", ";") and two.kind != "end"):
            continue
        if one.upper == "BEGIN":
            found.append((source.line(one.pos), float("inf")))
        elif one.upper == "COMMIT" and found and found[-1][1] == float("inf"):
            found[-1] = (found[-1][0], source.line(one.pos))
    return tuple(found)
