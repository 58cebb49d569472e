"""`ingestd local` as a process, for tests that meet it as users do."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.waiting import ended, eventually

BIN = Path(sys.executable).parent


@dataclass
class Local:
    """A running `ingestd local`, with its state in the folder's `.state`."""

    process: subprocess.Popen[str]
    folder: Path
    environ: Mapping[str, str]
    said: str = ""

    @property
    def log(self) -> Path:
        return self.folder / "errors.log"

    @property
    def endpoints(self) -> dict[str, str]:
        shown: dict[str, str] = json.loads((self.folder / ".state" / "endpoints.json").read_text())
        return shown

    def ingestd(self, *arguments: str, fails: bool = False) -> str:
        return ingestd(*arguments, cwd=self.folder, environ=self.environ, fails=fails)

    def rows(self, sql: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.ingestd("query", "--json", sql).splitlines()]

    def wait_for(self, sql: str, expected: list[dict[str, object]]) -> None:
        found: list[dict[str, object]] = []

        def there() -> bool:
            found[:] = self.rows(sql)
            return found == expected

        eventually(there, lambda: f"{sql} still gives {found}", signs=lambda: (found, self.log.stat().st_size))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        assert ended(self.process, lambda: f"still there: {self.log.read_text()[-4000:]}") == 0


def ingestd(*arguments: str, cwd: Path, environ: Mapping[str, str], fails: bool = False) -> str:
    ended = subprocess.run(
        [BIN / "ingestd", *arguments], cwd=cwd, env=environ, capture_output=True, text=True, timeout=500, check=False
    )
    assert (ended.returncode != 0) == fails, ended.stdout + ended.stderr
    return ended.stderr if fails else ended.stdout


@contextmanager
def local_command(folder: Path, *options: str, environ: Mapping[str, str]) -> Iterator[Local]:
    """It, from when it says that it is up until the block ends."""
    command = [BIN / "ingestd", "local", "--state", ".state", *options]
    with (
        (folder / "errors.log").open("a") as errors,
        subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            local = Local(process, folder, environ)
            for line in process.stdout:
                local.said += line
                if "Ctrl-C" in line:
                    break
            else:
                pytest.fail(local.said + local.log.read_text())
            yield local
        finally:
            if process.poll() is None:
                process.kill()
