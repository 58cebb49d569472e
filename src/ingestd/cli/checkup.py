"""What a look at the surroundings means: facts in, a line of the checklist with its remedy out. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingestd.gcp.inspection import BucketFacts, NotificationFacts, SinkFacts, SubscriptionFacts

FINALIZE = "OBJECT_FINALIZE"
DELETE = "OBJECT_DELETE"
READ = ("storage.objects.get", "storage.objects.list")
WRITE = (*READ, "storage.objects.create", "storage.objects.delete")
CONSUME = ("pubsub.subscriptions.consume",)
PUBLISH = ("pubsub.topics.publish",)
FILL = ("bigquery.tables.get", "bigquery.tables.updateData")
_LEAST_RETENTION = timedelta(days=7)
_MULTI_REGIONS = {"US": ("US",), "EU": ("EUROPE",)}


class Mark(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist."""

    what: str
    mark: Mark
    found: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "mark": self.mark, "found": self.found, "fix": self.fix}


def good(what: str, found: str = "") -> Check:
    return Check(what, Mark.OK, found)


def bad(what: str, found: str, fix: str = "") -> Check:
    return Check(what, Mark.FAILED, found, fix)


def doubtful(what: str, found: str, fix: str = "") -> Check:
    return Check(what, Mark.WARNING, found, fix)


def bucket(what: str, name: str, facts: "BucketFacts | None", wanted: Sequence[str], *, location: str) -> Check:
    title = f"{what} gs://{name}"
    if facts is None:
        fix = f"gcloud storage buckets create gs://{name} --location={location}"
        return bad(title, "there is no such bucket", fix)
    missing = [one for one in wanted if one not in facts.granted]
    if missing:
        role = "objectUser" if any("create" in one or "delete" in one for one in wanted) else "objectViewer"
        grant = f"gcloud storage buckets add-iam-policy-binding gs://{name}"
        fix = f"{grant} --member=serviceAccount:… --role=roles/storage.{role}"
        return bad(title, f"not permitted: {', '.join(missing)}", fix)
    return good(title, facts.location or "permitted")


def pulling(what: str, name: str, granted: frozenset[str]) -> Check:
    """Whether messages may be pulled: all that the daemon needs of a subscription."""
    title = f"{what} subscription {name}"
    if granted.issuperset(CONSUME):
        return good(title, "may be pulled from")
    grant = f"gcloud pubsub subscriptions add-iam-policy-binding {name.rpartition('/')[2]}"
    fix = f"{grant} --member=serviceAccount:… --role=roles/pubsub.subscriber"
    return bad(title, "pulling is not permitted, or there is no such subscription", fix)


def subscription(what: str, name: str, facts: "SubscriptionFacts | None", *, topic: str) -> list[Check]:
    """How it is set up, as far as that loses or blocks messages."""
    title = f"{what} subscription {name}"
    if facts is None:
        short = name.rpartition("/")[2]
        fix = f"gcloud pubsub subscriptions create {short} --topic={topic} --ack-deadline=60 --expiration-period=never"
        return [bad(title, "there is no such subscription", fix)]
    found = list(_subscription_problems(title, facts))
    shown = f"on {facts.topic.rpartition('/')[2]}, {facts.ack_deadline.seconds} s to acknowledge"
    return found if any(one.mark is Mark.FAILED for one in found) else [good(title, shown), *found]


def unread(what: str, error: Exception, grant: str) -> Check:
    """What the daemon can work without, but nobody may look at from here."""
    return doubtful(what, f"its configuration cannot be checked: {error}", f"to have it checked: {grant}")


def publishing(what: str, name: str, granted: frozenset[str]) -> Check:
    title = f"{what} {name}"
    if granted.issuperset(PUBLISH):
        return good(title, "may be published to")
    short = name.rpartition("/")[2]
    grant = f"gcloud pubsub topics add-iam-policy-binding {short}"
    fix = f"gcloud pubsub topics create {short}; {grant} --member=serviceAccount:… --role=roles/pubsub.publisher"
    return bad(title, "publishing is not permitted, or there is no such topic", fix)


def filling(name: str, granted: frozenset[str] | None) -> Check | None:
    """Whether rows may be put into a table; None where nothing is to be said: what is missing may yet be made."""
    if granted is None or granted.issuperset(FILL):
        return None
    missing = ", ".join(one for one in FILL if one not in granted)
    dataset = name.rpartition(".")[0]
    fix = f"grant roles/bigquery.dataEditor on the dataset {dataset}"
    return bad(f"table {name}", f"not permitted: {missing}", fix)


def _subscription_problems(title: str, facts: "SubscriptionFacts") -> Iterator[Check]:
    short = facts.name.rpartition("/")[2]
    update = f"gcloud pubsub subscriptions update {short}"
    if facts.push:
        yield bad(title, "it pushes; the daemon pulls", f"{update} --push-endpoint=''")
    if facts.topic == "_deleted-topic_":
        yield bad(title, "its topic was deleted", "create the subscription anew on the right topic")
    if facts.expires_after is not None:
        found = f"it is deleted after {facts.expires_after.days} days without a pull"
        yield doubtful(title, found, f"{update} --expiration-period=never")
    if facts.retention < _LEAST_RETENTION:
        found = f"it keeps messages for {facts.retention} only"
        yield doubtful(title, found, f"{update} --message-retention-duration=31d")
    if facts.dead_letter_topic:
        found = "after an outage of hours Pub/Sub moves good messages to its dead-letter topic"
        fix = f"{update} --clear-dead-letter-policy  (the daemon sets unreadable ones aside itself)"
        yield doubtful(title, found, fix)


def notification(name: str, configs: "Sequence[NotificationFacts]", topic: str) -> Check:
    title = f"notifications of gs://{name}"
    create = f"gcloud storage buckets notifications create gs://{name} --topic={topic} --event-types={FINALIZE}"
    fitting = [one for one in configs if one.topic == topic]
    if not fitting:
        elsewhere = ", ".join(sorted({one.topic for one in configs}))
        return bad(title, f"none goes to {topic}" + (f" (only to {elsewhere})" if elsewhere else ""), create)
    telling = [one for one in fitting if FINALIZE in (one.events or (FINALIZE,))]
    if not telling:
        return bad(title, f"they tell nothing of {FINALIZE}", create)
    if all(one.payload != "JSON_API_V1" for one in telling):
        found = "they carry no payload, so sizes and times have to be guessed"
        return doubtful(title, found, f"{create} --payload-format=json")
    prefixes = [one.prefix for one in telling if one.prefix]
    if len(telling) > 1 and not prefixes:
        found = f"{len(telling)} configurations tell of the same files: each is announced so many times"
        return doubtful(title, found, "gcloud storage buckets notifications delete …")
    only = f", only below {', '.join(prefixes)}" if len(prefixes) == len(telling) else ""
    return good(title, f"to {telling[0].topic.rpartition('/')[2]}{only}")


def deletions(name: str, configs: "Sequence[NotificationFacts]", topic: str) -> Check | None:
    """Whether deleting a control file is heard; None where no notification comes in: that is said already."""
    title = f"deletions in gs://{name}"
    fitting = [one for one in configs if one.topic == topic]
    if not fitting:
        return None
    if any(DELETE in (one.events or (DELETE,)) for one in fitting):
        return good(title, "told")
    found = f"no {DELETE} is told: deleting `_bqlock` frees no table, and deleting a `_config/` file wakes no batch"
    create = f"gcloud storage buckets notifications create gs://{name} --topic={topic} --payload-format=json"
    fix = f"{create} --event-types={DELETE} --skip-topic-setup  (or `ingestd ordered retry` for held tables)"
    return doubtful(title, found, fix)


def sink(sinks: "Sequence[SinkFacts] | None", topic: str) -> Check:
    title = "log sink for job completions"
    if sinks is None:
        return Check(title, Mark.SKIPPED, "the local cloud sends completions by itself")
    mine = [one for one in sinks if one.destination.removeprefix("pubsub.googleapis.com/") == topic]
    create = f"gcloud logging sinks create bigquery-completions pubsub.googleapis.com/{topic}"
    fix = f"{create} --log-filter=…  (docs/deployment.md has the filter)"
    if not mine:
        return bad(title, f"none goes to {topic}: completions are found by polling alone", fix)
    working = [one for one in mine if not one.disabled]
    if not working:
        return bad(title, f"{mine[0].name} is disabled", f"gcloud logging sinks update {mine[0].name} --no-disabled")
    one = working[0]
    if one.filter and "bigquery" not in one.filter.lower():
        return doubtful(title, f"the filter of {one.name} does not mention BigQuery", fix)
    return good(title, f"{one.name}; {one.writer} must be allowed to publish to the topic")


def locations(datasets: dict[str, str | None], buckets: dict[str, str], project: str) -> Iterator[Check]:
    """Whether every destination exists, and lies where its files can be loaded from."""
    for name, location in datasets.items():
        title = f"dataset {name}"
        if location is None:
            yield bad(title, "there is no such dataset", f"bq mk --dataset --location=US {project}:{name}")
            continue
        far = [f"gs://{one} is in {place}" for one, place in buckets.items() if place and not near(location, place)]
        if far:
            fix = "put bucket and dataset into the same location: BigQuery loads only from nearby"
            yield doubtful(title, f"{location}, but {'; '.join(far)}", fix)
        else:
            yield good(title, location)


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder of the daemon's, how long what is in it is needed, and for what."""

    folder: str  # below the bucket, with its slash
    days: int
    what: str
    vital: bool = True  # files would be lost or loaded twice; else only answers are


def lifecycle(name: str, facts: "BucketFacts", kept: Sequence[Kept]) -> Check:
    """Whether the bucket's own rules delete what the daemon still needs."""
    title = f"lifecycle rules of gs://{name}"
    if facts.deletions is None:
        return Check(title, Mark.SKIPPED, "may not be read (storage.buckets.get): see docs/reliability.md, Horizon")
    found = [
        (one, rule)
        for one in kept
        for rule in facts.deletions
        if _covers(rule.prefixes, one.folder) and (rule.days is None or rule.days < one.days)
    ]
    if not found:
        return good(title, "they keep what is needed" if facts.deletions else "none: everything is kept")
    one, rule = min(found, key=lambda pair: not pair[0].vital)
    when = "by another condition than age" if rule.days is None else f"after {rule.days} days"
    fix = f"gcloud storage buckets update gs://{name} --lifecycle-file=…  (only what {one.folder} does not cover)"
    say = bad if one.vital else doubtful
    return say(title, f"{one.folder} is deleted {when}, and must be kept for {one.days}: {one.what}", fix)


def _covers(prefixes: Sequence[str], folder: str) -> bool:
    return not prefixes or any(folder.startswith(one) or one.startswith(folder) for one in prefixes)


def near(dataset: str, bucket: str) -> bool:
    """Whether BigQuery loads into a dataset from a bucket: the same place, a part of it, or anything into US."""
    dataset, bucket = dataset.upper(), bucket.upper()
    if dataset in (bucket, "US") or bucket.startswith(f"{dataset}-"):
        return True
    return any(bucket.startswith(part) for part in _MULTI_REGIONS.get(dataset, ()))
