"""What gcloud itself says its commands and flags are: the table that its shell completion uses."""

import importlib.util
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any


def table_file(path: str | None = None) -> Path | None:
    """Where the SDK on the PATH (or another path) keeps the table."""
    found = shutil.which("gcloud", path=path)
    if found is None:
        return None
    names = [root / "data/cli/gcloud_completions.py" for root in Path(found).resolve().parents]
    return next((name for name in names if name.is_file()), None)


@lru_cache
def _tree(file: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("gcloud_completions", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tree: dict[str, Any] = module.STATIC_COMPLETION_CLI_TREE
    return tree


def mistakes(arguments: list[str], file: Path) -> list[str]:
    """What gcloud would not understand of a command line: unknown commands, unknown flags, values it does not take."""
    node = _tree(file)
    known = dict(node["flags"])
    found = []
    words = list(arguments)
    while words and words[0] in node["commands"]:
        node = node["commands"][words.pop(0)]
        known |= node["flags"]
    if node["commands"]:
        return [f"gcloud has no command {' '.join(arguments)}"]
    for word in words:
        if not word.startswith("--"):
            continue
        flag, given, value = word.partition("=")
        kind = known.get(flag, known.get(f"--{flag.removeprefix('--no-')}") if flag.startswith("--no-") else None)
        if kind is None:
            found.append(f"gcloud {' '.join(arguments[:3])} has no flag {flag}")
        elif isinstance(kind, list) and given and value not in kind:
            found.append(f"{flag} takes {', '.join(kind)}, not {value}")
        elif kind != "bool" and not given:
            found.append(f"{flag} is written without its value: use {flag}=…")
    return found
