"""From settings to the daemon's Spark."""

import os
import shutil
import tempfile
from pathlib import Path

import structlog

from ingestd.formats.inflation import Inflation
from ingestd.model.errors import IngestError
from ingestd.model.preparation import BadData, Drift
from ingestd.ports import FileStore
from ingestd.rules.schema import Engine as EngineName
from ingestd.rules.schema import RuleSpec
from ingestd.rules.shaping import engine_asked
from ingestd.settings import Spark as SparkSettings
from ingestd.spark import archive
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SideInputs, SparkPreparer, Where
from ingestd.spark.session.classic import ClassicEngine
from ingestd.spark.session.connect import ConnectEngine
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.failures import translate
from ingestd.spark.session.java import find_java, runnable_home
from ingestd.spark.session.masters import JAVA_OPTIONS, LOCAL_DIR, Kind, configuration, master, sizes
from ingestd.spark.session.session import Spark
from ingestd.spark.session.spill import Spill
from ingestd.spark.session.startup import Startup
from ingestd.spark.session.supervisor import Supervisor
from ingestd.spark.statements import SparkStatements
from ingestd.spark.warmup import prove, warm_up

log = structlog.get_logger(__name__)

_MOST_SCRATCH = 20 * 1024**3


def spark_for(settings: SparkSettings) -> Spark:
    """The daemon's Spark, not started yet: that is done by its root task, when somebody wants it."""
    supervisor = Supervisor(
        lambda startup: open_engine(settings, startup),
        lambda engine: warm_up(engine, master(settings)) if settings.warm_up else prove(engine, master(settings)),
        start_timeout=settings.start_timeout,
        heartbeat=settings.heartbeat,
        heartbeat_timeout=settings.heartbeat_timeout,
        restart_first=settings.restart_first,
        restart_longest=settings.restart_longest,
    )
    return Spark(
        supervisor,
        max_jobs=settings.max_jobs,
        start_timeout=settings.start_timeout,
        call_timeout=settings.call_timeout,
        allowed=settings.start != "never",
    )


def preparer_for(
    settings: SparkSettings, spark: Spark, store: FileStore, side_inputs: SideInputs | None = None
) -> tuple[SparkPreparer, SparkStatements]:
    """What prepares batches on it, and what runs statements over them; both within the same room on disk."""
    at = master(settings)
    folder = scratch_folder(settings)
    scratch = Scratch(folder, scratch_room(settings, folder))
    where = Where(at.files, at.cores, Inflation(settings.inflated_size, settings.inflated_ratio))
    return SparkPreparer(spark, store, scratch, where, side_inputs), SparkStatements(spark, store, scratch, where)


def open_engine(settings: SparkSettings, startup: Startup | None = None) -> Engine:
    """A session, up but cold. Blocks for many seconds."""
    where = master(settings)
    if where.kind is Kind.LOCAL and (problem := sizes(settings).problem):
        log.warning("spark.memory_short", why=problem)
    conf = configuration(settings, scratch_folder(settings))
    if where.kind is Kind.CONNECT:
        return ConnectEngine.open(where.url, conf, startup)
    java = find_java(os.environ)
    home, patience = runnable_home(java, cache_folder(settings)), settings.start_timeout.total_seconds()
    conf[JAVA_OPTIONS] = " ".join(filter(None, [conf[JAVA_OPTIONS], archive.option(java, conf[JAVA_OPTIONS])]))
    spill = Spill()  # elsewhere the name of a folder would be the executors' too, who nobody tidies up after
    if where.kind is Kind.LOCAL:
        spill = Spill.under(Path(root.strip()) for root in conf[LOCAL_DIR].split(","))
        conf |= {LOCAL_DIR: ",".join(map(str, spill.folders))}
    return ClassicEngine.open(conf, home, patience, startup, spill)


def try_out(settings: SparkSettings) -> None:
    """Start a session, prepare a batch on it, end it. Blocks; raises what kept it from that."""
    engine = open_engine(settings)
    try:
        warm_up(engine, master(settings), times=1, rows=1)
    except IngestError:
        raise
    except Exception as error:
        raise translate(error) from error
    finally:
        engine.kill()


def wants_spark(rule: RuleSpec, default_engine: str) -> bool:
    """Whether batches of the rule will be prepared on Spark, or followed by it: worth starting it ahead."""
    dest = rule.dest
    by_row = dest.drift is Drift.DISCARD_ROW or rule.on_bad_data is BadData.QUARANTINE_ROWS
    if by_row or rule.merge is not None or any(action.name == "spark" for _, action in rule.actions()):
        return True  # nobody else can do it
    chosen = EngineName(engine_asked(rule) or default_engine)
    return chosen is EngineName.SPARK and bool(dest.shapes or dest.drift is Drift.EVOLVE)


def scratch_folder(settings: SparkSettings) -> Path:
    folder = settings.scratch or Path(tempfile.gettempdir()) / f"ingestd-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scratch_room(settings: SparkSettings, folder: Path) -> int:
    """What fetched files may take of the volume; as much again is for prepared ones, the rest for spills."""
    volume = shutil.disk_usage(folder).total
    if settings.scratch_size is None:
        return min(volume * 2 // 5, _MOST_SCRATCH)
    if settings.scratch_size > volume:
        why = f"spark.scratch_size is {settings.scratch_size:,} bytes and the volume of {folder} has {volume:,}"
        log.warning("spark.scratch_short", why=f"{why}: batches will find it full; lower the one or enlarge the other")
    return int(settings.scratch_size)


def cache_folder(settings: SparkSettings) -> Path:
    if settings.cache:
        return settings.cache
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingestd"
