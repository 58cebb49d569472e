"""The two rules that most stories are told with, in simulations and with real daemons alike."""

from typing import Any

import pytest

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
FILE = "data/case002/dummy1.json"  # of the rule for files alone
FOLDER = "data/case003"  # of the rule for files together
modes = pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])


def alone(asynchronous: bool = True, **more: Any) -> dict[str, Any]:
    """The first scenario: every file is loaded by itself. With whatever else the test is about."""
    dest = {"Table": "bqtail.dummy", **more.pop("Dest", {})}
    document = {"When": {"Prefix": "/data/case002", "Suffix": ".json"}, "Async": asynchronous, "Dest": dest}
    return {**document, "OnSuccess": [{"Action": "delete"}], **more}


def together(asynchronous: bool = False, **more: Any) -> dict[str, Any]:
    """The second scenario: files of ten seconds are loaded together."""
    when = {"Prefix": f"/{FOLDER}", "Suffix": ".json"}
    batch = {"Window": {"DurationInSec": 10}, **more.pop("Batch", {})}
    return alone(asynchronous, **{"When": when, "Batch": batch, **more})
