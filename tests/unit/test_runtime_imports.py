"""The container installs ingestd without its extras: the daemon must not need what only the local cloud does."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.support.packages import core, extra_modules
from tests.support.places import ROOT

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not installed in the container", name=name)

BLOCKED = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import importlib, pkgutil
import ingestd
from ingestd.localcloud import statefolder  # the rest of the local cloud is what its extra is for
for found in pkgutil.walk_packages(ingestd.__path__, "ingestd."):
    if not found.name.startswith("ingestd.localcloud."):
        importlib.import_module(found.name)
print("imported")
"""


def imports(file: Path) -> Iterator[str]:
    """What a module imports, also where it does so only when it is called."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_daemon_and_its_commands_load_without_the_extras() -> None:
    blocked = extra_modules()
    assert {"duckdb", "farmhash", "httptools", "pytest"} <= blocked
    command = [sys.executable, "-c", PROGRAM, *sorted(blocked)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout.strip() == "imported", ended.stderr


def test_what_is_imported_late_is_installed_as_well() -> None:
    """Spark's workers, for one, import most of what they need when the first file comes."""
    found = core()
    providers = packages_distributions()
    package = ROOT / "src/ingestd"
    missing = {
        f"{file.relative_to(package)}: {name}"
        for file in package.rglob("*.py")
        if not file.is_relative_to(package / "localcloud")
        for name in imports(file)
        if name != "ingestd" and name not in sys.stdlib_module_names
        if not {re.sub(r"[-_.]+", "-", one).lower() for one in providers[name]} & found
    }
    assert missing == set()
