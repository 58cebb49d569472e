"""What replicas of a newer version leave behind when they are rolled back: records, locks and tasks in their own form.

Each looks like one of ours (it is made from one) but for its version, its name and its files. We have to leave it
alone, and everything else has to go on.
"""

import random
import re
from base64 import b64encode
from typing import Any

import orjson

from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.model import ListQuery, ObjectMetadata, ObjectVersion

VERSION = 99
_REGISTER = "journal/register/"
_PAGE = re.compile(r"\d{6,}\.json")
_PLACES = (("journal/Running/", ".run"), ("journal/Done/", ".run"), ("batch/", ".win"), ("tasks/", ".json"))


def draw_newer(seed: int, until: float) -> tuple[float, ...]:
    """When such a replica has just written something."""
    chance = random.Random(f"newer {seed}")
    if chance.random() < 0.75:
        return ()
    return tuple(chance.uniform(5, until) for _ in range(chance.choice((1, 2, 4))))


def leave(storage: StorageCore, bucket: str, chance: random.Random, litter: set[str]) -> str:
    """Put something down; its name, or nothing where there is nothing to imitate yet."""
    prefix, ending = chance.choice(_PLACES)
    listed = storage.objects.list(bucket, ListQuery(prefix=prefix)).items
    models = [one for one in listed if one.name.endswith(ending) and one.name not in litter]
    if not models:
        return ""
    model = chance.choice(models)
    number = str(chance.randrange(10**18, 9 * 10**18))
    name = _renamed(model.name, number)
    data = orjson.dumps(_newer(orjson.loads(storage.read(bucket, model.name)), number))
    storage.objects.insert(bucket, name, data, metadata=ObjectMetadata(custom=_labels(model, number)))
    return name


def leave_page(storage: StorageCore, bucket: str, chance: random.Random) -> str:
    """Add a page to the register: whoever asks for files of that hour has to wait, since it may have them."""
    listed = storage.objects.list(bucket, ListQuery(prefix=_REGISTER)).items
    logs: dict[str, int] = {}
    for one in listed:
        folder, _, own = one.name.rpartition("/")
        if _PAGE.fullmatch(own):
            logs[folder] = max(logs.get(folder, -1), int(own.removesuffix(".json")))
    if not logs:
        return ""
    folder = chance.choice(sorted(logs))
    name = f"{folder}/{logs[folder] + 1:06d}.json"
    storage.objects.insert(bucket, name, orjson.dumps({"schema_version": VERSION, "Pages": "of another kind"}))
    return name


def understand_page(storage: StorageCore, bucket: str, name: str) -> None:
    """That version is back, or has written in our form what it had: files of others."""
    files = b64encode(bytes(16)).decode()
    page = {"schema_version": 1, "Batches": [{"Record": "elsewhere.t/2024-01-01/1", "Files": files}]}
    storage.objects.insert(bucket, name, orjson.dumps(page))


def _renamed(name: str, number: str) -> str:
    folder, _, own = name.rpartition("/")
    stem, dot, ending = own.rpartition(".")
    # A window's name ends in when it is due; a record's and a task's is the batch's.
    table, _, due = stem.rpartition("_")
    renamed = f"{table.rpartition('_')[0]}_{number}_{due}" if ending == "win" else number
    return f"{folder}/{renamed}{dot}{ending}"


def _newer(document: dict[str, Any], number: str) -> dict[str, Any]:
    files = [{**file, "URL": f"gs://elsewhere/{number}.json"} for file in document.get("Files") or ()]
    return {**document, "schema_version": VERSION, "EventID": number, "Files": files, "Surprise": {"of": "ours"}}


def _labels(model: ObjectVersion, number: str) -> dict[str, str]:
    labels = {key: value for key, value in model.metadata.custom.items() if key != "ingestd-group"}
    ours = {"ingestd-event": number, "ingestd-version": str(VERSION), "ingestd-source": f"elsewhere/{number}.json%231"}
    return labels | {key: value for key, value in ours.items() if key in labels}
