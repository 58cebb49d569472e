"""Names for the places where the daemon changes the world, so that a run can tell where replicas died.

A site is a port's method and what it was about: `store.create shard`, `warehouse.insert_job load`, `messages.ack
notifications`.
"""

from typing import Any

from ingestd.model.objects import ABSENT, ObjectRef

READS = frozenset({"stat", "read", "list", "get_job", "table", "dataset_location", "rows", "pull", "request"})
LOOKS = READS - {"pull", "request"}  # those that may hang: a pull waits anyway

# Everything the daemon does in the drawn scenarios; a run of a thousand seeds must have died at each of them.
SITES = (
    "store.create lock",
    "store.replace lock",
    "store.create shard",
    "store.create closed",
    "store.create running",
    "store.replace running",
    "store.create done",
    "store.create task",
    "store.create note",
    "store.replace note",
    "store.create register",
    "store.create trail",
    "store.replace trail",
    "store.create heartbeat",
    "store.create error",
    "store.create corrupted",
    "store.copy archive",
    "store.copy corrupted",
    "store.delete source",
    "store.delete lock",
    "store.delete shard",
    "store.delete closed",
    "store.delete running",
    "store.delete done",
    "store.delete task",
    "store.create staging",
    "store.delete staging",
    "warehouse.insert_job load",
    "warehouse.insert_job copy",
    "warehouse.insert_job query",
    "warehouse.create_dataset",
    "warehouse.create_table",
    "warehouse.delete_table",
    "warehouse.insert_rows",
    "store.create group",
    "store.delete group",
    "publisher.publish",
    "messages.ack notifications",
    "messages.ack completions",
    "messages.extend notifications",
    "messages.extend completions",
)


# Removals of notes that nobody reads any more (a gone replica's use of quotas), long after: a death there leaves the
# note to the next who looks, and the worlds hardly ever last long enough to die just then.
HOUSEKEEPING = frozenset({"store.delete note"})

# So rare that a thousand seeds hardly have them: every world that does dies at the first. (Not among those above: each
# seed dies at one of them, so a name more would change every world.)
RARE = ("store.copy error", "store.create source")


def site_of(port: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, ops: str) -> str:
    if port == "messages":
        return f"{port}.{method}"
    if port == "warehouse":
        kind = f" {args[0].kind}" if method == "insert_job" else ""
        return f"{port}.{method}{kind}"
    if port != "store":
        return f"{port}.{method}"
    target: ObjectRef = args[1] if method == "copy" else args[0]
    verb = method
    if method == "create" and kwargs.get("if_generation") not in (None, ABSENT):
        verb = "replace"
    return f"store.{verb} {_thing(target, ops)}"


def _thing(ref: ObjectRef, ops: str) -> str:
    if ref.bucket != ops:
        return "source"
    folder, _, rest = ref.name.partition("/")
    if folder == "batch":
        if rest.endswith(".grp"):
            return "group"
        if "/" not in rest:
            return "lock"
        return "closed" if rest.endswith("/closed") else "shard"
    if folder == "journal":
        kind = rest.partition("/")[0]
        known = {
            "Running": "running",
            "Done": "done",
            "replicas": "heartbeat",
            "register": "register",
            "Trail": "trail",
        }
        return known.get(kind, "note")
    return {"tasks": "task", "errors": "error"}.get(folder, folder)
