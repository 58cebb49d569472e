"""What Spark is doing, as numbers: sessions, calls, stages and tasks."""

from prometheus_client import Counter, Gauge, Histogram

from ingestd.spark.session.engine import Work

UP = Gauge("ingestd_spark_up", "1 while a Spark session is ready for work.")
WANTED = Gauge("ingestd_spark_wanted", "1 once a rule or a batch needs Spark; then a session should be up.")
STARTED = Counter("ingestd_spark_sessions_started", "Spark sessions that came up.")
LOST = Counter("ingestd_spark_sessions_lost", "Spark sessions that were given up, by reason.", ["reason"])
for _reason in ("died", "hung", "stopped", "not started"):
    LOST.labels(_reason)
START_SECONDS = Gauge("ingestd_spark_start_seconds", "How long the last session took until it was ready.")

RUNNING = Gauge("ingestd_spark_calls_running", "Pieces of work on Spark right now.")
WAITING = Gauge("ingestd_spark_calls_waiting", "Pieces of work that wait for their turn or for a session.")
CALLS = Counter("ingestd_spark_calls", "Pieces of work given to Spark, by outcome.", ["outcome"])
for _outcome in ("succeeded", "failed", "cancelled", "timed out", "lost"):
    CALLS.labels(_outcome)
SECONDS = Histogram(
    "ingestd_spark_call_seconds",
    "How long a piece of work took on Spark.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)

STAGES = Gauge("ingestd_spark_active_stages", "Stages that run right now.")
TASKS = Gauge("ingestd_spark_active_stage_tasks", "Tasks of the stages that run right now, by state.", ["state"])
for _state in ("open", "done", "failed"):
    TASKS.labels(_state)


def show(work: Work) -> None:
    STAGES.set(work.stages)
    TASKS.labels("open").set(max(work.tasks - work.tasks_done, 0))
    TASKS.labels("done").set(work.tasks_done)
    TASKS.labels("failed").set(work.tasks_failed)
