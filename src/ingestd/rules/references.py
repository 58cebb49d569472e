"""The syntax of variables: `$x`, `${x}`, `$a.b[0]`, `$1`, `$Mod(n)`.

Scanning is separate from knowing values, so the same syntax serves expansion, SQL and lint. Text that only resembles a
reference (`$`, `${`, `$-`) is ordinary text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_STEP = r"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[A-Za-z0-9_]+\])"
_PATH = rf"[A-Za-z_][A-Za-z0-9_]*{_STEP}*"
_REFERENCE = re.compile(
    rf"\$(?:\{{ *(?:Mod\((?P<bmod>\d+)\)|(?P<bpath>{_PATH})|(?P<bdigits>\d+)) *\}}"
    rf"|Mod\((?P<mod>\d+)\)|(?P<path>{_PATH})|(?P<digits>\d+))"
)
_STEPS = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([A-Za-z0-9_]+)\]")

# `ds.t$20240131` is a partition, not group 2 followed by digits.
_MOST_GROUP_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One `.key` or `[index]`, and where it ends in the text."""

    key: str
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable in a text, from `start` to `end`. Exactly one of `name`, `group`, `modulus` is set."""

    start: int
    end: int
    text: str
    name: str = ""
    name_end: int = 0
    steps: tuple[Step, ...] = ()
    group: str = ""
    modulus: str = ""
    braced: bool = False

    @property
    def label(self) -> str:
        """How messages call it: `$Name`, `$1`, `$Mod(4)`."""
        return f"${self.name or self.group or f'Mod({self.modulus})'}"


def find_references(text: str) -> Iterator[Reference]:
    """Every reference of a text, left to right."""
    if "$" not in text:
        return
    for match in _REFERENCE.finditer(text):
        yield _reference(match)


def reference_at(text: str, position: int) -> Reference | None:
    match = _REFERENCE.match(text, position)
    return _reference(match) if match else None


def _reference(match: re.Match[str]) -> Reference:
    start, end, whole = match.start(), match.end(), match[0]
    modulus = match["mod"] or match["bmod"]
    if modulus:
        return Reference(start, end, whole, modulus=modulus, braced=match["mod"] is None)
    if digits := match["digits"] or match["bdigits"]:
        return Reference(start, end, whole, group=digits, braced=match["digits"] is None)
    group = "path" if match["path"] else "bpath"
    path, offset = match[group], match.start(group)
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    steps = tuple(
        Step(step[1] or step[2], offset + len(name) + step.end()) for step in _STEPS.finditer(path[len(name) :])
    )
    return Reference(start, end, whole, name, offset + len(name), steps, braced=group == "bpath")


def group_index(digits: str, count: int, *, braced: bool) -> tuple[int, int] | None:
    """Which capture group `digits` means among `count`, and how many digits say so: `$10` is ten when there are ten."""
    if braced:
        return (int(digits), len(digits)) if len(digits) <= _MOST_GROUP_DIGITS and 0 < int(digits) <= count else None
    if len(digits) > _MOST_GROUP_DIGITS:
        return None
    for length in range(len(digits), 0, -1):
        if 0 < int(digits[:length]) <= count:
            return int(digits[:length]), length
    return None
