"""The pages an operator reads at night say what the code does."""

import re
import subprocess
import sys
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from tests.support.places import ROOT

from ingestd.model.quantities import format_duration
from ingestd.settings import Settings

PAGE = (ROOT / "docs" / "operations.md").read_text()


def generated_metrics() -> str:
    command = [sys.executable, ROOT / "tools" / "metrics-page"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=500).stdout


def test_the_metrics_page_is_made_from_the_code() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == generated_metrics(), "run: make docs"


def test_every_metric_the_operations_page_names_exists() -> None:
    known = set(re.findall(r"`(ingestd_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    named = {name for name in re.findall(r"ingestd_[a-z_]+", PAGE) if name != "ingestd_event"}
    assert len(named) > 15
    assert named <= known, named - known


def default(setting: str) -> Any:
    model: type[BaseModel] = Settings
    *sections, name = setting.split(".")
    for section in sections:
        annotation = model.model_fields[section].annotation
        assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
        model = annotation
    return model.model_fields[name].default


def shown(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, int) and value >= 1024**2 and value % 1024**2 == 0:
        return f"{value // 1024**2}MiB"
    return {(): "[]", "": '""'}.get(value, str(value))


def test_every_setting_the_operations_page_names_exists_with_that_default() -> None:
    table = re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \|", PAGE, re.MULTILINE)
    assert len(table) > 10
    for setting, said in table:
        assert said == shown(default(setting)), setting


def is_setting(name: str) -> bool:
    try:
        default(name)
    except KeyError:
        return False
    return True


def is_logged(event: str, code: str) -> bool:
    """Named as it stands, or made of its family and a word the code knows (`f"batch.{phase}"`)."""
    family, _, word = event.partition(".")
    return f'"{event}"' in code or (f'f"{family}.{{' in code and f'"{word}"' in code)


def test_every_dotted_name_on_the_operations_page_is_a_setting_or_a_logged_event() -> None:
    code = "".join(file.read_text() for file in (ROOT / "src" / "ingestd").rglob("*.py"))
    dotted = {name for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", PAGE) if not name.endswith((".json", ".yaml"))}
    assert len(dotted) > 30
    assert [name for name in sorted(dotted) if not is_setting(name) and not is_logged(name, code)] == []


def test_every_command_the_operations_page_names_exists() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "ingestd", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for named in set(re.findall(r"`ingestd (\w+)", PAGE)):
        assert re.search(rf"\b{named}\b", said), named


def test_the_readme_leads_here() -> None:
    assert "docs/operations.md" in (ROOT / "README.md").read_text()
