"""Resource names: `projects/{project}/{topics|subscriptions|snapshots}/{id}`, with Google's rules for the id."""

import re

from ingestd.localcloud.pubsub.errors import invalid

DELETED_TOPIC = "_deleted-topic_"

_PROJECT = re.compile(r"projects/([^/]+)")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")


def check(name: str, collection: str) -> str:
    """The name itself when well formed, else INVALID_ARGUMENT."""
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != "projects" or not parts[1] or parts[2] != collection:
        raise invalid(f"Invalid [{collection}] name: (name={name})")
    if not _ID.fullmatch(parts[3]) or parts[3].lower().startswith("goog"):
        raise invalid(f"Invalid resource id in name: (name={name})")
    return name


def check_project(name: str) -> str:
    if not _PROJECT.fullmatch(name):
        raise invalid(f"Invalid project name: (name={name})")
    return name


def project_of(name: str) -> str:
    return name.split("/", 2)[1]
