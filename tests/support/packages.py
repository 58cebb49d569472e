"""Which packages an installation of ingestd brings along, and which only its extras do."""

import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires

from tests.support.places import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

MODULES = {"pyfarmhash": "farmhash"}


def installed_with(requirement: str, found: set[str]) -> None:
    """Add what an installation of this brings along here: some of it is for other systems and not there."""
    name = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()
    if name in found:
        return
    with suppress(PackageNotFoundError):
        needed = requires(name) or ()
        found.add(name)
        for more in needed:
            if "extra ==" not in more:
                installed_with(more, found)


def core() -> set[str]:
    """Every package of an installation without extras."""
    found: set[str] = set()
    for line in PYPROJECT["dependencies"]:
        installed_with(line, found)
    return found


def extra_modules() -> set[str]:
    """What only the extras bring."""
    extras: dict[str, list[str]] = PYPROJECT["optional-dependencies"]
    names = {re.split(r"[^\w.-]", line)[0] for extra in extras.values() for line in extra}
    return {MODULES.get(name, name.replace("-", "_")) for name in names - core()}
