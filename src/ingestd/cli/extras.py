"""Commands that need more than the core installation say so in one line, before they begin anything."""

import re

from ingestd.cli.errors import CommandError

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*;.*\bextra == [\"'](\w+)[\"']")


def need(extra: str, what: str) -> None:
    """`what` needs the extra: refuse where a package of it is not installed."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("ingestd") or []
    except PackageNotFoundError:  # run from its sources: who does that knows
        return
    for found in map(_REQUIREMENT.match, declared):
        if found is not None and found[2] == extra and not _installed(found[1]):
            raise missing(extra, what, found[1])


def missing(extra: str, what: str, package: str) -> CommandError:
    return CommandError(f"{what} is not installed (no {package}): pip install 'ingestd[{extra}]'")


def _installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
