"""Regular expressions: GoogleSQL's are RE2's, Spark's are Java's.

A constant pattern is checked by RE2, so what only Java knows (look-around, back references) is refused, and is then
rewritten so that Java means the same: `$` is the end alone, `.` stops at `\\n` alone, `\\s` is ASCII.
"""

import re
from functools import lru_cache

import re2

from ingestd.googlesql.errors import SqlError

_NAMED = re.compile(r"\(\?P<")
_FLAGS = re.compile(r"\(\?([imsU-]+)([:)])")


@lru_cache(maxsize=512)
def java_pattern(pattern: str) -> tuple[str, int]:
    """The pattern in Java's dialect, and how many groups it has."""
    options = re2.Options()
    options.log_errors = False
    try:
        groups = int(re2.compile(pattern, options).groups)
    except re2.error as error:
        raise SqlError(f"{pattern!r} is not a regular expression: {error}") from None
    out: list[str] = []
    at, in_class, multiline = 0, False, False
    while at < len(pattern):
        rest = pattern[at:]
        character = pattern[at]
        if character == "\\":
            taken, written = _escape(rest, in_class=in_class)
            out.append(written)
            at += taken
            continue
        if in_class:
            in_class = character != "]"
            # Java's classes nest and intersect; RE2's do not.
            inner = character == "[" and not rest.startswith("[:")
            if rest.startswith("[:") and ":]" in rest:
                name, _, _ = rest[2:].partition(":]")
                out.append(_POSIX.get(name, ""))
                at += len(name) + 4
                if not _POSIX.get(name):
                    raise SqlError(f"[:{name}:] is not available on Spark")
                in_class = True
                continue
            out.append("\\[" if inner else "\\&" if character == "&" else character)
            at += 1
            continue
        if character == "[":
            in_class = True
            head = "[^" if rest.startswith("[^") else "["
            out.append(head)
            at += len(head)
            if pattern[at : at + 1] == "]":  # a bracket that comes first is a member
                out.append("\\]")
                at += 1
            continue
        flags = _FLAGS.match(rest)
        if flags:
            on, _, off = flags[1].partition("-")
            multiline = multiline or "m" in on
            if "U" in flags[1]:
                raise SqlError("the flag U of a regular expression is not available on Spark")
            on = on.replace("i", "iu")
            out.append(f"(?{on}{'-' + off if off else ''}{flags[2]}")
            at += len(flags[0])
            continue
        if _NAMED.match(rest):
            out.append("(?<")
            at += 4
            continue
        out.append(r"\z" if character == "$" and not multiline else character)
        at += 1
    return "(?d)" + "".join(out), groups


_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "word": "a-zA-Z0-9_",
    "space": r" \t\n\x0B\f\r", "xdigit": "0-9a-fA-F", "blank": r" \t",
}  # fmt: skip


_SCRIPT = re.compile(r"\\[pP]\{([A-Z][a-z_A-Z]{2,})\}")
_GROUP = re.compile(r"\((?!\?(?!P?<))")


def matches_nothing(pattern: str) -> bool:
    """Whether it finds an empty text."""
    return re2.search(pattern, "") is not None


def may_be_absent(pattern: str) -> bool:
    """Whether its only group may take no part in a match; rather yes than no."""
    text = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", lambda found: "_" * len(found[0]), pattern)
    group = _GROUP.search(text)
    if group is None:
        return False
    depth, end = 1, group.end()
    while end < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    outside = text[: group.start()] + text[end:]
    return "|" in outside or re.search(r"\)(?:[?*]|\{0)", ")" + text[end:]) is not None


def _escape(rest: str, *, in_class: bool) -> tuple[int, str]:
    code = rest[1:2]
    if code == "s":
        return 2, r"\t\n\f\r " if in_class else r"[\t\n\f\r ]"
    if code == "S" and not in_class:
        return 2, r"[^\t\n\f\r ]"
    if code in "QEC" or (code == "S" and in_class):
        raise SqlError(f"\\{code} in a regular expression is not available on Spark")
    if code == "v":
        return 2, r"\x0B"
    script = _SCRIPT.match(rest)
    if script:  # a script is no block of its name
        return script.end(), rf"\{code}{{Is{script[1]}}}"
    return 2, "\\" + code


@lru_cache(maxsize=512)
def java_replacement(text: str, groups: int) -> str:
    """GoogleSQL's replacement (`\\1`, `\\\\`) in Java's form (`$1`)."""
    out, at = "", 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            following = text[at + 1 : at + 2]
            if following.isdigit():
                if int(following) > groups:
                    raise SqlError(f"the replacement names group {following}; the pattern has {groups}")
                out += f"${following}"
                # A digit that follows must not become part of the group's number.
                if text[at + 2 : at + 3].isdigit():
                    out += "\\"
            elif following == "\\":
                out += "\\\\"
            else:
                raise SqlError("a replacement has \\0 to \\9 or \\\\ after a backslash")
            at += 2
            continue
        out += "\\$" if character == "$" else character
        at += 1
    return out
