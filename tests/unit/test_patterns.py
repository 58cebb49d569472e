"""Regular expressions mean the same on every Python that ingestd runs on."""

import ast
import re

from tests.support.places import ROOT

SOURCE = ROOT / "src/ingestd"
FOR_JAVA = {"spark/sql/functions/jsons.py"}  # Spark's own expressions


def test_no_group_is_repeated_possessively() -> None:
    """Up to 3.11.4, which Debian 12 has, Python matches those wrongly (gh-106052); single characters are safe."""
    found = []
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        tree = ast.parse(path.read_text())
        modules = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
        if "re" not in modules or name in FOR_JAVA:
            continue
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        found += [f"{name}:{node.lineno}" for node in texts if re.search(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>", node.value)]
    assert found == []
