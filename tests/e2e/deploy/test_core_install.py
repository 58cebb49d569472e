"""ingestd as it is installed for production, without extras: every command works, or says which extra it wants."""

import json
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.e2e.deploy.core_install import CoreInstall
from tests.support.e2e.cloud_process import cloud_command
from tests.support.e2e.processes import Daemon
from tests.support.packages import extra_modules
from tests.support.places import ROOT
from tests.support.service_links import SERVICE_LINKS
from tests.support.waiting import eventually

from ingestd.cli.commands import COMMANDS
from ingestd.cli.main import app
from ingestd.cli.samples import read_samples
from ingestd.localcloud.statefolder import Endpoints

pytestmark = [pytest.mark.xdist_group("core-install"), pytest.mark.timeout(1800)]

SAMPLES = ROOT / "config/samples"
TRIGGER = "gs://play-trigger"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, as it is typed."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        known = COMMANDS.get(name) if not path else None  # the root only has stand-ins for them
        yield from commands(known.load(name) if known else command, (*path, name))


def test_it_holds_the_sources_as_they_are_and_no_extra(installed: CoreInstall, tmp_path: Path) -> None:
    tried = sorted(extra_modules())
    code = f"""
import importlib.util, ingestd, json
found = [name for name in {tried!r} if importlib.util.find_spec(name)]
print(json.dumps([ingestd.__file__, found]))
"""
    shown = subprocess.run(
        [installed.python, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=installed.environ(),
    )
    file, extras = json.loads(shown.stdout)
    package = Path(file).parent
    assert installed.folder in package.parents
    assert extras == []
    source = ROOT / "src/ingestd"
    wanted = {one.relative_to(source) for one in source.rglob("*") if one.is_file() and one.suffix != ".pyc"}
    assert wanted <= {one.relative_to(package) for one in package.rglob("*") if one.is_file()}


def test_every_command_explains_itself(installed: CoreInstall, tmp_path: Path) -> None:
    found = [*commands(typer.main.get_command(app))]
    assert ("rules", "lint") in found and len(found) > 25
    with ThreadPoolExecutor(2) as pool:
        shown = [*pool.map(lambda path: installed.run(*path, "--help", cwd=tmp_path), found)]
    for path, one in zip(found, shown, strict=True):
        assert (one.returncode, one.stderr) == (0, ""), path
        assert f"Usage: ingestd {' '.join(path)}".strip() in one.stdout, path


def test_the_local_cloud_says_which_extra_it_wants(installed: CoreInstall, tmp_path: Path) -> None:
    for command in (["cloud", "--state", "s"], ["local", "--state", "s"], ["demo", "--rules", ".", "--samples", "."]):
        said = installed.run(*command, cwd=tmp_path)
        assert said.returncode == 1, command
        assert re.fullmatch(
            r"error: the local cloud is not installed \(no \w+\): pip install 'ingestd\[local\]'\n", said.stderr
        ), (command, said.stderr)
        assert not (tmp_path / "s").exists()


@dataclass
class Production:
    """A local cloud that stands for Google's, and what is typed on the machine that ingestd is installed on."""

    installed: CoreInstall
    folder: Path
    environ: dict[str, str]
    daemon: Daemon | None = field(default=None)

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        ended = self.installed.run(*arguments, cwd=self.folder, **self.environ)
        assert ended.returncode == code, f"{arguments}: {ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr
        return ended.stdout if code == 0 else ended.stdout + ended.stderr

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self(*arguments, "--json"))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("query", sql, "--json").splitlines()]

    @contextmanager
    def running(self, **settings: str) -> Iterator[Daemon]:
        """`ingestd run` with nothing but the environment that a pod has."""
        log = self.folder / f"daemon-{uuid.uuid4().hex}.log"
        environ = self.installed.environ(**self.environ, **settings)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.installed.command, "run"], cwd=self.folder, env=environ, stdout=output, stderr=output
            )
        daemon = Daemon(process.pid, log, command=process)
        try:
            yield daemon
        finally:
            daemon.close()


@pytest.fixture(scope="module")
def production(installed: CoreInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    folder = tmp_path_factory.mktemp("production")
    with cloud_command(folder / "cloud", "--provision"):
        settings = {
            "INGESTD_PROJECT": "play",
            "INGESTD_RULES__URL": "gs://play-config/rules",
            "INGESTD_HTTP__HOST": "127.0.0.1",
            "INGESTD_HTTP__PORT": "0",
            "INGESTD_SPARK__CACHE": str(folder / "spark"),
            "INGESTD_SPARK__WARM_UP": "false",  # a session proves itself all the same
            "INGESTD_WINDOWS__FLUSH_AFTER": "200ms",
            **SERVICE_LINKS,
        }
        ingestd = Production(installed, folder, {**Endpoints.load(folder / "cloud").environ(), **settings})
        rules = sorted((ROOT / "config/rules").glob("*.yaml"))
        ingestd("cp", *rules, "gs://play-config/rules/")
        samples = read_samples(SAMPLES)
        ingestd("query", samples.setup)
        with ingestd.running(INGESTD_SPARK__START="always") as daemon:
            eventually(lambda: daemon.said("daemon.started") or not daemon.alive, daemon.log.read_text)
            ingestd.daemon = daemon
            yield ingestd
            daemon.send(signal.SIGTERM)
            daemon.wait()
            assert daemon.command is not None
            assert daemon.command.wait() == 0, daemon.log.read_text()
            assert daemon.complaints() == []


def test_the_daemon_loads_the_samples_and_prepares_a_batch_on_spark(production: Production) -> None:
    samples = read_samples(SAMPLES)
    for name in samples.files:
        production("cp", SAMPLES / name, f"{TRIGGER}/{name}")
    daemon = production.daemon
    assert daemon is not None
    # Files that come seconds apart are in different windows, each of which keeps one row per click.
    counts = {
        "orders": "(SELECT COUNT(*) FROM shop.orders)",
        "customers": "(SELECT COUNT(*) FROM shop.customers)",
        "clicks": "(SELECT COUNT(DISTINCT click_id) FROM shop.clicks)",
        "raw": "(SELECT COUNTIF(page != LOWER(page)) FROM shop.clicks)",
    }
    wanted = {**{table.partition(".")[2]: rows for table, rows in samples.rows.items()}, "raw": 0}
    sql = "SELECT " + ", ".join(f"{query} AS {name}" for name, query in counts.items())
    daemon.heard("prepare.done")  # Spark takes longest, and a query is a process
    eventually(lambda: production.rows(sql) == [wanted], lambda: daemon.log.read_text())
    assert daemon.get("/readyz").status_code == 200
    assert daemon.metric("ingestd_spark_up") == 1


def test_the_commands_of_an_operator_work_beside_it(production: Production) -> None:
    daemon, url = production.daemon, f"{TRIGGER}/customers/customers.csv"
    assert daemon is not None
    production("cp", SAMPLES / "customers/customers.csv", url)

    def ended() -> list[dict[str, Any]]:
        told = production.json("explain", url)  # of earlier uploads, too
        mine = [one for one in told["history"] if one["generation"] == told["generation"]]
        return [one for one in mine if one["phase"] == "done"]

    explained = eventually(ended, daemon.log.read_text)
    assert explained[0]["fate"] == "loaded"
    assert explained[0]["destination"].endswith("shop.customers")
    [sent] = production.json("publish", url)
    assert (sent["exists"], sent["known"]) == (True, "loaded")
    production("cp", url, "back.csv")
    assert (production.folder / "back.csv").read_bytes() == (SAMPLES / "customers/customers.csv").read_bytes()
    status = production.json("status", "--daemon", daemon.url)
    assert status["daemon"]["project"] == "play"
    assert production("windows")
    assert "error" not in production("faults", "list", "--state", "cloud")
    assert "everything is in place" in production("doctor") or "0 to mend" in production("doctor")


def test_rules_are_checked_in_a_folder_and_in_a_bucket(production: Production) -> None:
    for where in (ROOT / "config/rules", "gs://play-config/rules"):
        assert "0 errors" in production("rules", "lint", where)
    (production.folder / "bad.yaml").write_text("When: {Prefx: /a/}\nDest: {Table: shop.a}\n")
    assert "did you mean" in production("rules", "lint", "bad.yaml", code=1)


def test_a_folder_is_loaded_once_without_a_daemon(production: Production) -> None:
    shown = production("load", SAMPLES / "customers", "--dest", "shop.once", "--autodetect", "--dry-run")
    assert "shop.once" in shown and "customers.csv" in shown
    assert "loaded" in production("load", SAMPLES / "customers", "--dest", "shop.once", "--autodetect")
    assert production.rows("SELECT COUNT(*) AS n FROM shop.once") == [{"n": 4}]


def test_spark_connect_says_which_extra_it_wants(production: Production) -> None:
    with production.running(INGESTD_SPARK__MASTER="sc://127.0.0.1:1", INGESTD_SPARK__START="always") as daemon:
        [refused, *_] = eventually(lambda: daemon.said("spark.not_started"), daemon.log.read_text)
        assert refused["error"].endswith("pip install 'ingestd[connect]'")
        assert daemon.get("/readyz").status_code == 503


def test_it_is_this_python(installed: CoreInstall) -> None:
    shown = subprocess.run([installed.python, "-VV"], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == f"Python {sys.version}".replace("\n", "")
