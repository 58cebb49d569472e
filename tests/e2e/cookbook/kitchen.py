"""Cooks the page: its files saved, its commands run by a shell, its queries asked until they answer as it says."""

import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.api_core.exceptions import GoogleAPICallError
from tests.e2e.cookbook.page import Query, Recipe, Shell, read_page
from tests.support.e2e.environment import newcomers_environment
from tests.support.e2e.local_process import BIN, Local, local_command
from tests.support.e2e.web import Web, web_server
from tests.support.google import bigquery_client
from tests.support.waiting import early_in_a_window, eventually

_AT_ONCE = 4
_WINDOW = 15  # seconds instead of the page's minute; its files are to be uploaded within one, on a busy machine too
_ENVIRON = {
    "INGESTD_WINDOWS__GRACE": "500ms",
    "INGESTD_LOAD_STATE__FLUSH_EVERY": "1s",
    # A short life with small jobs: compiling little costs least.
    "INGESTD_SPARK__MASTER": "local[2]",
    "INGESTD_SPARK__HEAP": "1536MiB",
}


class Kitchen:
    def __init__(self, local: Local, slack: Web, before: Recipe, recipes: list[Recipe]) -> None:
        self.slack = slack
        self._local = local
        self._bigquery = bigquery_client(local.endpoints["bigquery"], "local-dev")
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._cook(before)
        # Windows take their time by themselves: they go first.
        order = sorted(recipes, key=lambda recipe: not recipe.windowed)
        self._cooked: dict[str, Future[None]] = {
            recipe.title: self._pool.submit(self._cook, recipe) for recipe in order
        }

    def outcome(self, title: str) -> None:
        self._cooked[title].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._bigquery.close()

    def _cook(self, recipe: Recipe) -> None:
        for step in recipe.steps:
            match step:
                case Shell():
                    if recipe.windowed:
                        early_in_a_window(_WINDOW, room=_WINDOW - 2)
                    self._run(step)
                case Query():
                    self._ask(step)

    def _run(self, step: Shell) -> None:
        """Once; what shows something is asked until it shows what the page does."""
        if step.prints is None:
            self._shell(step.script)
        else:
            self._eventually(lambda: self._shown(step), step)

    def _shown(self, step: Shell) -> str | None:
        """What it prints instead of the page's lines."""
        try:
            said = self._shell(step.script)
        except AssertionError as error:
            return str(error)
        lines = iter(said.splitlines())
        return None if all(any(_fits(line, wanted) for line in lines) for wanted in step.prints or ()) else said

    def _shell(self, script: str) -> str:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self._local.folder,
            env=self._local.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def _ask(self, step: Query) -> None:
        if step.rows is None:
            self._bigquery.query_and_wait(step.sql)
        else:
            self._eventually(lambda: self._other_rows(step), step)

    def _eventually(self, difference: Callable[[], Any], step: Shell | Query) -> None:
        """Look until there is none, or the daemon has nothing left to do."""
        found = None

        def as_shown() -> bool:
            nonlocal found
            found = difference()
            return not found

        log = self._local.log
        eventually(as_shown, lambda: f"{step}\n{found}\n{log.read_text()}", signs=lambda: log.stat().st_size)

    def _other_rows(self, step: Query) -> Any:
        """What it answers instead of the page's rows."""
        try:
            result = self._bigquery.query_and_wait(step.sql)
        except GoogleAPICallError as error:  # a table that is made with its first rows
            return str(error)
        rows = [["NULL" if value is None else str(value) for value in row.values()] for row in result]
        found = [[column.name for column in result.schema], *rows]
        return None if found == step.rows else found


def _fits(line: str, wanted: str) -> bool:
    """Whether they are one line, `…` standing for anything and spaces for any number of them."""
    pattern = ".*".join(map(re.escape, " ".join(wanted.split()).split("…")))
    return re.fullmatch(pattern, " ".join(line.split())) is not None


@contextmanager
def open_kitchen(folder: Path, chosen: Collection[str]) -> Iterator[Kitchen]:
    before, recipes = read_page()
    for file in [*before.files, *(file for recipe in recipes for file in recipe.files)]:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text.replace("Duration: 1m", f"Duration: {_WINDOW}s"))
    with web_server() as slack:
        environ = {
            **newcomers_environment(),
            **_ENVIRON,
            "INGESTD_ACTIONS__SLACK_URL": f"{slack.url}/api",
            "INGESTD_ACTIONS__SLACK_TOKEN": "xoxb-cookbook",
        }
        environ["PATH"] = f"{BIN}{os.pathsep}{environ['PATH']}"
        with local_command(folder, "--config", "cookbook.yaml", environ=environ) as local:
            kitchen = Kitchen(local, slack, before, [recipe for recipe in recipes if recipe.title in chosen])
            try:
                yield kitchen
            finally:
                kitchen.close()
