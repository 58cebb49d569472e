"""`ingestd …` as a user types it, in this process: starting Python for each command would be most of a test's time."""

import json
from typing import Any

from tests.support.e2e.world import World
from typer.testing import CliRunner

from ingestd.cli import main, terminal


class Ingestd:
    """Runs commands with a world's settings."""

    def __init__(self, world: World, **settings: Any) -> None:
        self._config = str(world.settings(**settings))

    def __call__(self, *arguments: str, code: int = 0, width: int = 80) -> str:
        runner = CliRunner(env={"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"})
        with _consoles(width):
            done = runner.invoke(main.app, [*arguments, "--config", self._config])
        assert done.exit_code == code, f"{arguments}: {done.output}\n{done.exception!r}"
        return done.stdout if code == 0 or "--json" in arguments else done.output

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


class _consoles:  # noqa: N801 - used like a function
    """Rich asks for its stream and width when it is made: let it ask again."""

    def __init__(self, width: int) -> None:
        self._width = width

    def __enter__(self) -> None:
        self._before = [(console, console._width, console._file) for console in (terminal.output, terminal.errors)]
        for console, _, _ in self._before:
            console._width = self._width
            console._file = None

    def __exit__(self, *_: object) -> None:
        for console, width, file in self._before:
            console._width, console._file = width, file
