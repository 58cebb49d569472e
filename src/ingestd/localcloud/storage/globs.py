"""Name patterns: the listing's `matchGlob`, and the plain `*` of load-job URIs.

Both become RE2 expressions, which run in linear time whatever a caller sends.
"""

from functools import lru_cache
from typing import Protocol

import re2

from ingestd.localcloud.storage.errors import invalid


class Matcher(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def literal_prefix(glob: str) -> str:
    """What every matching name starts with, to bound the scan."""
    for index, char in enumerate(glob):
        if char in "*?[{\\":
            return glob[:index]
    return glob


def alternatives(glob: str) -> list[str]:
    """The patterns of a glob that is a list of them in braces, else the glob itself: each bounds a scan of its own."""
    inner = glob[1:-1]
    if not (glob.startswith("{") and glob.endswith("}")) or set("{}[\\") & set(inner):
        return [glob]
    return inner.split(",")


@lru_cache(maxsize=256)
def glob_matcher(glob: str) -> Matcher:
    """`*` and `?` stop at a slash, `**` does not; `[a-z]`, `[!a]` and `{a,b}` as in a shell."""
    out: list[str] = []
    depth = 0
    index = 0
    while index < len(glob):
        char = glob[index]
        index += 1
        if char == "*":
            if glob.startswith("*", index):
                index += 1
                out.append(".*")
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            end = glob.find("]", index + 1)
            if end < 0:
                raise invalid(f"Invalid glob pattern: {glob}", parameter="matchGlob")
            body = glob[index:end]
            negated = body[:1] in "!^"
            members = body[1:] if negated else body
            for special in "\\[]^":
                members = members.replace(special, "\\" + special)
            out.append(f"[{'^' if negated else ''}{members}]")
            index = end + 1
        elif char == "{":
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and index < len(glob):
            out.append(re2.escape(glob[index]))
            index += 1
        else:
            out.append(re2.escape(char))
    if depth:
        raise invalid(f"Invalid glob pattern: {glob}", parameter="matchGlob")
    return _compiled("".join(out), glob)


@lru_cache(maxsize=256)
def wildcard_matcher(pattern: str) -> Matcher:
    """`*` matches anything, slashes included; every other character is itself."""
    return _compiled(".*".join(re2.escape(part) for part in pattern.split("*")), pattern)


def _compiled(expression: str, source: str) -> Matcher:
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    try:
        matcher: Matcher = re2.compile(expression, options)
    except re2.error as error:
        raise invalid(f"Invalid glob pattern: {source}", parameter="matchGlob") from error
    return matcher
