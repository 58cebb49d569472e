"""Running seeds: quietly and many, or one with its story told; and what a run has to show for itself."""

import gc
import logging
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Histogram
from prometheus_client.values import MutexValue
from tests.sim.real_bigquery import RealBigQuery
from tests.sim.scenario import Features, draw
from tests.sim.scheduler import REPLICA, Trace, simulate
from tests.sim.sites import HOUSEKEEPING, SITES
from tests.support.children import end_with_parent
from tests.support.sim.plain_bigquery import PlainBigQuery

FEATURES = Features(crash_sites=SITES)
_SHOWN = 20
_HOPELESS = 60  # seconds of CPU for one seed, which takes a quarter of one


@dataclass(slots=True)
class Report:
    seeds: int = 0
    seconds: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    crashed_at: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)  # that struck, by kind
    slowest: float = 0.0  # virtual seconds from the last fault to rest

    def add(self, other: "Report") -> None:
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.failures |= other.failures
        self.effects += other.effects
        self.crashed_at += other.crashed_at
        self.faults += other.faults
        self.slowest = max(self.slowest, other.slowest)

    @property
    def never_crashed_at(self) -> list[str]:
        """Effects that took place, or should have, and that no replica died at."""
        crashed = {site for site, times in self.crashed_at.items() if times}
        return sorted((set(SITES) | set(self.effects)) - crashed - HOUSEKEEPING)

    def text(self) -> str:
        lines = [f"{'effect':34}{'happened':>10}{'crashed at':>12}"]
        for site in sorted(set(SITES) | set(self.effects)):
            lines.append(f"{site:34}{self.effects[site]:>10}{self.crashed_at[site]:>12}")
        lines.append(f"\n{'fault':64}{'struck':>10}")
        lines += [f"{kind:64}{times:>10}" for kind, times in sorted(self.faults.items())]
        each = self.seconds / self.seeds * 1000 if self.seeds else 0
        lines.append(
            f"{self.seeds} seeds, {len(self.failures)} failed; {self.seconds:.1f} s of CPU, {each:.0f} ms each; "
            f"settled at most {self.slowest:.0f} simulated seconds after the last fault"
        )
        for seed, problem in sorted(self.failures.items())[:_SHOWN]:
            lines += [f"\nseed {seed}: {problem}", f"  replay: {command(seed)}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "cpu_seconds": round(self.seconds, 2),
            "failures": {str(seed): problem for seed, problem in self.failures.items()},
            "effects": dict(self.effects),
            "crashed_at": dict(self.crashed_at),
            "faults": dict(self.faults),
            "slowest": round(self.slowest, 1),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Report":
        failures = {int(seed): problem for seed, problem in data["failures"].items()}
        return cls(
            data["seeds"],
            data["cpu_seconds"],
            failures,
            Counter(data["effects"]),
            Counter(data["crashed_at"]),
            Counter(data["faults"]),
            data["slowest"],
        )


def command(seed: int) -> str:
    return f"python -m tests.sim --seed {seed} -v"


def run_seeds(
    seeds: Iterable[int],
    features: Features = FEATURES,
    bigquery: type[PlainBigQuery | RealBigQuery] = PlainBigQuery,
    *,
    collect: bool = True,
) -> Report:
    """All of them, in this process; a failing one is noted and the others go on.

    Without `collect`, for a process that ends afterwards, they leave what they leave: a megabyte and a half each.
    """
    report = Report()
    many = list(seeds)
    collecting = _collecting_rarely(afterwards=collect) if len(many) > 3 else nullcontext()
    with collecting, quiet(), _unmeasured(), _folder() as folder:
        for number, seed in enumerate(many):
            if collect and number % 25 == 24:
                gc.collect()
            start = time.process_time()
            try:
                with _given_up_after(_HOPELESS):
                    evidence = simulate(draw(seed, features), folder / str(seed), bigquery=bigquery)
            except (Exception, Hopeless) as error:  # noqa: BLE001 - whatever went wrong is the finding
                report.failures[seed] = f"{type(error).__name__}: {error}"[:2000]
            else:
                report.effects += evidence.effects
                report.crashed_at += evidence.crashed_at
                report.faults += evidence.faults
                report.slowest = max(report.slowest, evidence.settled_after)
            report.seconds += time.process_time() - start
            report.seeds += 1
        if collect:
            gc.collect()
    return report


def run_many(
    first: int, count: int, *, workers: int = 1, verbose: bool = False, features: Features = FEATURES
) -> Report:
    report = Report()
    workers = max(1, workers)
    size = max(1, min(50 if count < 5000 else 250, count // workers))
    chunks = [range(start, min(start + size, first + count)) for start in range(first, first + count, size)]
    try:
        with _running(chunks, workers, features) as parts:
            for part in parts:
                report.add(part)
                _progress(report, part, count, verbose)
    except KeyboardInterrupt:
        print("stopped; this is what was run")
    return report


@contextmanager
def _running(chunks: list[range], workers: int, features: Features) -> Iterator[Iterator[Report]]:
    """The chunks' reports, as they are done; what is not begun is not begun any more once somebody stops us."""
    if workers == 1:
        yield (run_seeds(chunk, features) for chunk in chunks)
        return
    try:
        yield _apart(chunks, workers, features)
    finally:
        for worker in active_children():
            worker.kill()  # what it has begun would keep this process until its end, and a seed may have none


def _apart(chunks: list[range], workers: int, features: Features) -> Iterator[Report]:
    """Each chunk in a process of its own, so many at a time: what its seeds leave behind goes with it at once."""
    waiting = iter(chunks)
    running: dict[Future[Report], ProcessPoolExecutor] = {}
    while True:
        for chunk in islice(waiting, workers - len(running)):
            alone = ProcessPoolExecutor(1, initializer=end_with_parent)
            running[alone.submit(run_seeds, chunk, features, collect=False)] = alone
        if not running:
            return
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            running.pop(done).shutdown()
            yield done.result()


def _progress(report: Report, part: Report, count: int, verbose: bool) -> None:
    """What failed is told when it is found: a long run may never come to its end."""
    for seed, problem in part.failures.items():
        print(f"seed {seed}: {problem}\n  replay: {command(seed)}", flush=True)
    if verbose or count > 5000:
        print(f"{report.seeds} of {count} seeds, {len(report.failures)} failed", flush=True)


def replay(seed: int, *, verbose: bool, features: Features = FEATURES) -> int:
    """One seed, its story told if wanted; 1 when it fails."""
    scenario = draw(seed, features)
    trace: Trace | None = None
    with _folder() as folder:
        if verbose:
            print(scenario)
            trace = tell
            structlog.configure(processors=[_line], logger_factory=structlog.PrintLoggerFactory())
        else:
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        try:
            evidence = simulate(scenario, folder / str(seed), trace)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the finding
            print(f"seed {seed} fails:\n{type(error).__name__}: {error}")
            return 1
    print(f"seed {seed} holds: {len(evidence.inputs)} files, settled after {evidence.settled_after:.0f} s")
    return 0


def tell(who: str, what: str) -> None:
    import asyncio

    print(f"{asyncio.get_event_loop().time():9.3f} {who:12} {what}")


def _line(logger: Any, method: str, event: dict[str, Any]) -> str:
    import asyncio

    name = event.pop("event")
    details = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("exc_info",))
    return f"{asyncio.get_event_loop().time():9.3f} {REPLICA.get():12}   · {name} {details}"


@contextmanager
def quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with warnings.catch_warnings():
            # A replica that dies leaves work behind that nobody awaits: that is what dying means.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
    finally:
        structlog.configure(**before)


class Hopeless(KeyboardInterrupt):
    """A seed that takes CPU for ever: simulated time stands still, or somebody works through years of it."""


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Counts this process's CPU, not the clock: a busy machine makes no seed hopeless.

    What is raised may be lost where nobody hears it, in a finalizer or a task of a replica that dies of it; so it is
    raised again and again, and whatever came of it is the same verdict.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    verdict = f"not over after {seconds} s of CPU"
    struck = False

    def give_up(number: int, frame: object) -> None:
        nonlocal struck
        struck = True
        raise Hopeless(verdict)

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    except Exception as error:
        if struck:
            raise Hopeless(verdict) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if struck:
        raise Hopeless(verdict)


@contextmanager
def _unmeasured() -> Iterator[None]:
    """Nobody reads the metrics of a simulated replica."""
    inc, observe = MutexValue.inc, Histogram.observe
    MutexValue.inc = Histogram.observe = lambda *_: None
    try:
        yield
    finally:
        MutexValue.inc, Histogram.observe = inc, observe


@contextmanager
def _collecting_rarely(*, afterwards: bool) -> Iterator[None]:
    """Looking for cycles in all that was imported, over and over, took an eighth of the time.

    Goes around the look at what is left, which is a short one then, too.
    """
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if afterwards:
            gc.enable()
            gc.unfreeze()


@contextmanager
def _folder() -> Iterator[Path]:
    """In memory where there is such a place: nothing here has to survive."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
