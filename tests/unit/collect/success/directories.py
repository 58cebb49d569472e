"""What the convention makes of a directory, step by step: its configuration, its listing, its record."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.manual_clock import ManualClock

from ingestd.batch.record import Record
from ingestd.collect.success.configuration import ConfigFile, Configured, Transform, configured, folders
from ingestd.collect.success.listing import Listed, select
from ingestd.collect.success.planning import Findings, nothing_to_load, resolved, unresolved
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.settings import Convention, Settings
from ingestd.settings_loader import load_settings

NOW = datetime(2024, 1, 1, tzinfo=UTC)

SUCCESS = ObjectRef("b", "ds/t/$20240101/b1/_SUCCESS")


def made(files: dict[str, Any]) -> Configured:
    """The configuration of a batch in `ds/t/b/`, from names to contents."""
    contents = {
        ConfigFile(ObjectRef("b", name), Generation(1), len(text := _text(value))): text.encode()
        for name, value in files.items()
    }
    levels = [
        [file for file in contents if file.ref.name.rpartition("/")[0] == f"{folder}_config"]
        for folder in folders("ds/t/b/_SUCCESS")
    ]
    return configured(levels, contents)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def listed(*names: str, empty: tuple[str, ...] = (), **options: Any) -> Listed:
    objects = [ObjectInfo(ObjectRef("b", name), Generation(1), 5, NOW) for name in names]
    objects += [ObjectInfo(ObjectRef("b", name), Generation(1), 0, NOW) for name in ("ds/t/x/_SUCCESS", *empty)]
    objects.sort(key=lambda one: one.ref.name)
    return select(objects, ObjectRef("b", "ds/t/x/_SUCCESS"), Convention(bucket="b", **options))


def names(found: Listed) -> list[str]:
    return [file.ref.name.removeprefix("ds/t/x/") for file in found.files]


def planned(
    *names: str, load: dict[str, Any] | None = None, transform: Transform | None = None, name: str = "", **options: Any
) -> Record:
    convention = Convention(bucket="b", **options)
    infos = [ObjectInfo(ObjectRef("b", f"ds/t/$20240101/b1/{one}"), Generation(1), 5, NOW) for one in names]
    listed = select([*infos, ObjectInfo(SUCCESS, Generation(7), 0, NOW)], SUCCESS, convention)
    record = unresolved(FileVersion(SUCCESS, Generation(7)), project="home", clock=ManualClock())
    found = Configured(load or {"writeDisposition": "WRITE_APPEND"}, source_name=name, transform=transform)
    return nothing_to_load(record, listed) or resolved(record, Findings(convention, found, listed), project="home")


def loaded(text: str, tmp_path: Path, **environ: str) -> Settings:
    file = tmp_path / "settings.yaml"
    file.write_text(f"project: p\n{text}")
    return load_settings(Settings, file, environ)
