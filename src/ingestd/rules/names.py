"""What rules are called: each by a name of its own.

Windows, records, metrics, `replay --rule` and the marks of moved files know a rule by its name: two of one name would
share windows, and the first of them would decide what becomes of the other's files. Yet files are copied with their
`Info.Workflow`, which is written for people. So a workflow's name is its rule's only while no other rule claims it.

A rule's name thus changes when a file comes or goes that claims it, as it does when a file is renamed, and replicas
notice at different times. That loads nothing twice and loses nothing: windows that are open and batches under way have
their rule pinned, by whatever name; a file that is announced again and falls into a window of the other name is in the
register (`batch.register`), which knows tables and generations and no names; an action asks for its secrets by its
rule's content before its name (`RuleBook.actions`); and files that it has moved under its own prefix, which are new to
the register, are marked by its place as well (`place_key`).
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b

from ingestd.rules.rule import Rule


def names_of(url: str, root: str, index: int, count: int, workflow: str | None = None) -> tuple[str, ...]:
    """What a rule may be called, best first, and the last by no other rule.

    `sub/orders` (or the workflow) for the only rule of `<root>sub/orders.yaml`, `sub/orders#2` for its third;
    `sub/orders.yaml` where there is `sub/orders.json`, too.
    """
    path = url.removeprefix(root)
    stems = (*([workflow] if workflow else []), posixpath.splitext(path)[0], path)
    return stems if count == 1 else tuple(f"{stem}#{index}" for stem in stems)


def place_in_file(name: str, url: str) -> str:
    """`#2` for a name of the third rule of a file that has several, nothing for the only one of its file."""
    if url.endswith(name) or posixpath.splitext(url)[0].endswith(name):
        return ""
    _, hash_, index = name.rpartition("#")
    return hash_ + index if index.isdecimal() else ""


def place_key(name: str, url: str) -> str:
    """What a rule of this name is known by, whatever it is called before and after: its file, and its place in that."""
    place = f"{url}{place_in_file(name, url)}".encode("utf-8", "surrogatepass")
    return f"at:{blake2b(place, digest_size=9).hexdigest()}"


def told_apart(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules by names that are their own, whatever order they come in.

    Of those that share a name, the ones that have most other names left go on to their next: workflows give way to
    files, and files that differ in their extension only take that along.
    """
    given = tuple(rules)
    passed = [0] * len(given)
    while True:
        holders: dict[str, list[int]] = defaultdict(list)
        for number, rule in enumerate(given):
            holders[rule.names[passed[number]]].append(number)
        give_way = []
        for sharing in holders.values():
            left = [len(given[number].names) - passed[number] for number in sharing]
            if len(sharing) > 1 and max(left) > 1:
                give_way += [number for number, names in zip(sharing, left, strict=True) if names == max(left)]
        if not give_way:
            break
        for number in give_way:
            passed[number] += 1
    called = ((rule, rule.names[steps]) for rule, steps in zip(given, passed, strict=True))
    return tuple(rule if rule.name == name else replace(rule, name=name) for rule, name in called)
