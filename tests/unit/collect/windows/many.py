"""Windows and files by number."""

from datetime import UTC, datetime, timedelta

from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.model import WindowId, WindowKey
from ingestd.collect.windows.store import WindowHead
from ingestd.model.objects import FileVersion, Generation, ObjectRef

NOW = datetime.now(UTC)

DUE = NOW + timedelta(minutes=5)


def window(number: int) -> WindowId:
    return WindowId(WindowKey("rule", f"ds.table{number}", "gs://b/folder", ".json"), 1_699_999_800, 300)


def head(number: int) -> WindowHead:
    return WindowHead(window(number), "me", DUE, PinnedRule({}, "", ""), "ds.t", {}, {}, asynchronous=False)


def files(count: int) -> list[FileVersion]:
    return [FileVersion(ObjectRef("b", f"folder/{n:06d}.json"), Generation(n + 1), 10, NOW) for n in range(count)]
