"""One run: make the surroundings, start the daemon, play every scenario at once, count again, remove everything."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ingestd.cli.acceptance import surroundings
from ingestd.cli.acceptance.daemon import Daemon, running
from ingestd.cli.acceptance.estate import Estate
from ingestd.cli.acceptance.scenarios import Scenario
from ingestd.cli.acceptance.stage import Row, Stage, Unmet
from ingestd.cli.errors import CommandError
from ingestd.model.errors import IngestError

if TYPE_CHECKING:
    from ingestd.gcp.connect import Clients
    from ingestd.gcp.provisioning import Provisioner

_DRAIN_SECONDS = 40.0
_SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one promise."""

    name: str
    promise: str
    passed: bool
    seen: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Report:
    run: str
    verdicts: list[Verdict] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # what could not be removed
    log: str = ""  # where the daemon's log is kept

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and all(one.passed for one in self.verdicts) and not self.left

    def to_json(self) -> dict[str, Any]:
        verdicts = [one.to_json() for one in self.verdicts]
        return {"run": self.run, "passed": self.passed, "scenarios": verdicts, "left": self.left, "log": self.log}


Tell = Callable[[str], None]


async def run(
    estate: Estate, scenarios: tuple[Scenario, ...], *, seconds: float, keep: bool, tell: Tell, warn: Tell
) -> Report:
    """The whole run. Whatever ends it, what it made is removed, unless it is to be kept."""
    from ingestd.gcp.connect import connect
    from ingestd.gcp.provisioning import Provisioner

    report = Report(estate.run)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=f"ingestd-acceptance-{estate.run}-"))
    report.log = str(folder / "daemon.log")
    with await asyncio.to_thread(Provisioner, estate.project) as cloud:
        try:
            async with connect(estate.project) as clients:
                await surroundings.make(estate, cloud, clients, scenarios, tell)
                await _with_daemon(estate, scenarios, clients, cloud, folder, seconds, report, tell)
        finally:
            if keep:
                tell(f"kept: remove it with --clean {estate.run}")
            else:
                tell("removing what the run made")
                report.left = await surroundings.remove(estate, cloud)
                for one in report.left:
                    warn(f"not removed: {one}")
    if report.passed and not keep:
        await asyncio.to_thread(shutil.rmtree, folder)
        report.log = ""
    return report


async def _with_daemon(
    estate: Estate,
    scenarios: tuple[Scenario, ...],
    clients: "Clients",
    cloud: "Provisioner",
    folder: Path,
    seconds: float,
    report: Report,
    tell: Tell,
) -> None:
    config = folder / "ingestd.yaml"
    routes = [route for one in scenarios if one.routes for route in one.routes(estate)]
    await asyncio.to_thread(config.write_text, yaml.safe_dump(estate.settings(routes)))
    expected: dict[str, list[Row]] = {}

    def stage(limit: float) -> Stage:
        return Stage(estate, clients, cloud, config=config, seconds=limit, expected=expected)

    async with running(config, folder / "daemon.log") as daemon:
        tell(f"the daemon starts; its log is {report.log}")
        await daemon.ready()
        tell(f"playing {len(scenarios)} scenarios")
        played = asyncio.gather(*(_play(one, stage(seconds), tell) for one in scenarios))
        report.verdicts += await _while_it_lives(daemon, played)
        if all(one.passed for one in report.verdicts):
            report.verdicts.append(await _judged("once", _ONCE, _count_again(stage(_SETTLE_SECONDS), expected)))
        report.verdicts.append(await _judged("drain", _DRAIN, _drained(daemon)))


_ONCE = "after everything settled, no row is there twice"
_DRAIN = "SIGTERM ends the daemon in time, without a traceback in its log"


async def _play(scenario: Scenario, stage: Stage, tell: Tell) -> Verdict:
    verdict = await _judged(scenario.name, scenario.promise, scenario.play(stage))
    tell(f"{scenario.name}: {'passed' if verdict.passed else 'FAILED'} after {verdict.seconds:.0f} s")
    return verdict


async def _judged(name: str, promise: str, played: Any) -> Verdict:
    started = time.monotonic()
    try:
        seen, passed = await played, True
    except (Unmet, IngestError) as error:
        seen, passed = str(error), False
    return Verdict(name, promise, passed, seen, round(time.monotonic() - started, 1))


async def _while_it_lives(daemon: Daemon, played: "asyncio.Future[list[Verdict]]") -> list[Verdict]:
    """What was played; a daemon that dies meanwhile ends it at once, with its last words."""
    while not (await asyncio.wait([played], timeout=1.0))[0]:
        if not daemon.running:
            played.cancel()
            await asyncio.wait([played])
            raise CommandError(f"the daemon died:\n{daemon.last_words()}")
    return played.result()


async def _count_again(stage: Stage, expected: dict[str, list[Row]]) -> str:
    async def pending() -> list[str]:
        return [*await stage.names("ops/journal/Running/"), *await stage.names("ops/tasks/")]

    async def settled() -> bool:
        return not await pending()

    await stage.until(settled, "every batch should end", pending)
    for table, rows in expected.items():
        if (found := await stage.rows(table)) != rows:
            raise Unmet(f"{table} has {found} now, and had {rows}")
    return f"{len(expected)} tables counted again"


async def _drained(daemon: Daemon) -> str:
    code = await daemon.stop(_DRAIN_SECONDS)
    complaints = await asyncio.to_thread(daemon.complaints)
    if code != 0:
        raise Unmet(f"it ended with {code}:\n{daemon.last_words()}")
    if complaints:
        raise Unmet(f"its log has tracebacks under {', '.join(sorted(set(complaints)))}")
    return "exit code 0"


async def clean(estate: Estate) -> list[str]:
    """Remove what an earlier run left; what could not be removed."""
    from ingestd.gcp.provisioning import Provisioner

    with await asyncio.to_thread(Provisioner, estate.project) as cloud:
        return await surroundings.remove(estate, cloud)
