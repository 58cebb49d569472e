"""Every benchmark with sizes that take seconds: whether it still runs, not how fast anything is.

`python -m bench.tiny NAME` runs one. A benchmark that is not listed here is not tested, so the test asks for all.
"""

import asyncio
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Run = Callable[[Any], Any]


def _plain(module: Any) -> Any:
    return module.main()


def _sized(run: Run = _plain, **constants: Any) -> Run:
    """The benchmark with other sizes in place of its own."""

    def made(module: Any) -> Any:
        for name, value in constants.items():
            assert hasattr(module, name), f"{module.__name__} has no {name}"
            setattr(module, name, value)
        return run(module)

    return made


def _with_arguments(*arguments: str) -> Run:
    def made(module: Any) -> Any:
        sys.argv[1:] = arguments
        return module.main()

    return made


def _localcloud(module: Any) -> Any:
    storage = importlib.import_module("bench.localcloud_storage")
    pubsub: Any = importlib.import_module("bench.localcloud_pubsub")
    bigquery = importlib.import_module("bench.localcloud_bigquery")
    storage.run = partial(storage.run, 0.2)
    pubsub.MESSAGES, pubsub.SLOW_CLIENT_MESSAGES = 2_000, 1_000
    bigquery.run = partial(bigquery.run, 3)
    return module.main()


def _cold(run: Run) -> Run:
    """On a session that is hardly warm."""

    def made(module: Any) -> Any:
        importlib.import_module("bench.spark").WARM_UPS = 1  # type: ignore[attr-defined]
        return run(module)

    return made


def _cluster(module: Any) -> Any:
    quick = importlib.import_module("tests.support.spark.processes").QUICK
    return _sized(lambda one: one.main(2, 200_000, 1), NUMBERS=1_000_000, EXECUTORS=quick)(module)


def _backlog(module: Any) -> Any:
    windows: Any = importlib.import_module("bench.windows")
    windows.WINDOWS = module.WINDOWS = 10
    return _sized(FILES=20_000)(module)


TINY: dict[str, Run] = {
    "backlog": _backlog,
    "cluster": _cluster,
    "console": lambda module: asyncio.run(_sized(lambda one: one.main(20, 50), ROUNDS=2, TABLES=2)(module)),
    "e2e": _with_arguments(
        "--files=40", "--tables=2", "--window=2", "--grace=0.5", "--only=delete,none,move,success", "--patience=120"
    ),
    "growth": _cold(lambda module: module.main((1, 2), 200_000)),
    "intake": _sized(EVENTS=2_000, ROUNDS=1),
    "journal": _sized(lambda module: module.main(["--share=0"]), TABLES=20, ROUNDS=1, FILES=8),
    "localcloud": _localcloud,
    "routing": _sized(EVENTS=20, ROUNDS=1),  # the sizes are what it compares
    "shapes": _cold(_sized(lambda module: module.main(2, 1), SIZE=100_000)),
    "spark": _cold(lambda module: module.main(["--tiny"])),
    "success": _with_arguments("5"),
    "windows": _sized(WINDOWS=2),
}


def main(name: str) -> int:
    return int(TINY[name](importlib.import_module(f"bench.{name}")) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
