"""The container installs ingestd without its extras: the daemon must not need what only the local cloud does."""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]
MODULES = {"google-crc32c": "google_crc32c", "pyfarmhash": "farmhash"}
NEEDED_BY_GOOGLES_CLIENTS = {"google-crc32c"}

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not installed in the container", name=name)

BLOCKED = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import ingestd.app
import ingestd.cli.main
import ingestd.gcp.connect
import ingestd.ledger.explain
import ingestd.ledger.replay
import ingestd.rules.lint
print("imported")
"""


def test_the_daemon_and_its_commands_load_without_the_extras() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {line.partition(">")[0].partition("<")[0].partition("=")[0] for extra in extras.values() for line in extra}
    blocked = {MODULES.get(name, name.replace("-", "_")) for name in names - NEEDED_BY_GOOGLES_CLIENTS}
    assert {"duckdb", "farmhash", "pytest"} <= blocked
    command = [sys.executable, "-c", PROGRAM, *sorted(blocked)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout.strip() == "imported", ended.stderr
