"""Before anything is made: may all of it be done? What is missing is named with the role that has it.

Facts in, lines of a checklist out, as `ingestd doctor` shows them; the questions are asked by `examine`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestd.cli.checkup import Check, Mark, bad, doubtful, good, near
from ingestd.model.errors import IngestError

if TYPE_CHECKING:
    from ingestd.gcp.inspection import BucketFacts
    from ingestd.gcp.provisioning import Provisioner


@dataclass(frozen=True, slots=True)
class Need:
    """Permissions of one kind, what they are for, and the least predefined role that has them."""

    what: str
    permissions: tuple[str, ...]
    role: str


ON_BUCKET = (
    Need(
        "objects of the run",
        ("storage.objects.create", "storage.objects.get", "storage.objects.list", "storage.objects.delete"),
        "roles/storage.objectUser",
    ),
    Need("a notification of its own", ("storage.buckets.get", "storage.buckets.update"), "roles/storage.admin"),
)
ON_PROJECT = (
    Need(
        "topics and subscriptions of its own",
        (
            "pubsub.topics.create",
            "pubsub.topics.delete",
            "pubsub.topics.getIamPolicy",
            "pubsub.topics.setIamPolicy",
            "pubsub.topics.attachSubscription",
            "pubsub.topics.publish",
            "pubsub.subscriptions.create",
            "pubsub.subscriptions.delete",
            "pubsub.subscriptions.consume",
        ),
        "roles/pubsub.admin",
    ),
    Need("a log sink of its own", ("logging.sinks.create", "logging.sinks.delete"), "roles/logging.configWriter"),
    Need("jobs", ("bigquery.jobs.create",), "roles/bigquery.jobUser"),
)
NEW_DATASET = Need("the dataset", ("bigquery.datasets.create",), "roles/bigquery.user")


def examine(cloud: "Provisioner", bucket: str, dataset: str, location: str, *, spark: bool) -> Iterator[Check]:
    """Every question, asked one after the other; what cannot be asked is a warning, since the run itself will tell."""
    facts, check = _bucket(cloud, bucket)
    yield from check
    place, check = _dataset(cloud, dataset, location or (facts.location if facts else ""), facts)
    yield from check
    yield from _project(cloud, (*ON_PROJECT, *(() if place else (NEW_DATASET,))))
    yield _asked("BigQuery jobs", lambda: _jobs(cloud, place or location or "US"))
    if spark:
        yield _java()


def missing(on: str, needs: tuple[Need, ...], granted: frozenset[str], grant: str) -> Iterator[Check]:
    """One line for each need: permitted, or what is missing and the command that grants it."""
    for need in needs:
        title = f"{need.what} in {on}"
        lacking = [one for one in need.permissions if one not in granted]
        if lacking:
            fix = f"{grant} --member=user:YOU --role={need.role}"
            yield bad(title, f"not permitted: {', '.join(lacking)}", fix)
        else:
            yield good(title, "permitted")


def _bucket(cloud: "Provisioner", name: str) -> "tuple[BucketFacts | None, list[Check]]":
    title = f"bucket gs://{name}"
    try:
        facts = cloud.bucket(name, tuple(one for need in ON_BUCKET for one in need.permissions))
    except IngestError as error:
        return None, [bad(title, str(error), f"gcloud storage buckets describe gs://{name}")]
    if facts is None:
        fix = f"gcloud storage buckets create gs://{name} --project={cloud.project} --uniform-bucket-level-access"
        return None, [bad(title, "there is no such bucket", fix)]
    grant = f"gcloud storage buckets add-iam-policy-binding gs://{name}"
    return facts, list(missing(f"gs://{name}", ON_BUCKET, facts.granted, grant))


def _dataset(
    cloud: "Provisioner", dataset: str, wanted: str, bucket: "BucketFacts | None"
) -> tuple[str | None, list[Check]]:
    title = f"dataset {dataset}"
    try:
        place = cloud.dataset_location("", dataset)
    except IngestError as error:
        return None, [bad(title, str(error), "grant roles/bigquery.dataEditor on the dataset")]
    if place is None:
        return None, [good(title, f"will be made in {wanted or 'US'} and removed again")]
    if bucket and bucket.location and not near(place, bucket.location):
        found = f"it is in {place}, and gs://{bucket.name} in {bucket.location}: BigQuery loads only from nearby"
        return place, [bad(title, found, "choose another dataset, or one that does not exist yet")]
    return place, [good(title, f"is there, in {place}; the run adds tables of its own and removes them")]


def _project(cloud: "Provisioner", needs: tuple[Need, ...]) -> list[Check]:
    title = f"permissions in {cloud.project}"
    try:
        granted = cloud.project_permissions(tuple(one for need in needs for one in need.permissions))
    except IngestError as error:
        fix = f"gcloud services enable cloudresourcemanager.googleapis.com --project={cloud.project}"
        return [doubtful(title, f"cannot be asked: {error}", fix)]
    if granted is None:
        return [Check(title, Mark.SKIPPED, "the local cloud permits everything")]
    grant = f"gcloud projects add-iam-policy-binding {cloud.project}"
    return list(missing(cloud.project, needs, granted, grant))


def _jobs(cloud: "Provisioner", location: str) -> Check:
    cloud.can_query(location)
    return good("BigQuery jobs", f"run in {location}")


def _java() -> Check:
    import os

    from ingestd.spark.session.java import find_java

    try:
        java = find_java(os.environ)
    except IngestError as error:
        return bad(
            "Java for Spark", str(error), "apt-get install openjdk-17-jre-headless, or leave it out: --skip spark"
        )
    return good("Java for Spark", f"{java.version} in {java.home}")


def _asked(what: str, ask: Callable[[], Check]) -> Check:
    try:
        return ask()
    except IngestError as error:
        return bad(what, str(error), "grant roles/bigquery.jobUser on the project")
