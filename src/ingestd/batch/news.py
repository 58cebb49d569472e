"""What the daemon's parts tell whoever wants to know: one list of listeners for each kind of news.

One of these is handed to everybody who tells or listens when they are made; a listener puts itself on the list. Nobody
knows who else is there. Listeners neither wait for long nor raise, except that tidying up after a batch may fail.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ingestd.batch.record import Record
from ingestd.model.objects import FileVersion


@dataclass(frozen=True, slots=True)
class News:
    ended: list[Callable[[Record], Awaitable[None]]] = field(default_factory=list)  # a batch
    released: list[Callable[[Record], None]] = field(default_factory=list)  # this process let go of it, ended or not
    refused: list[Callable[[FileVersion, str, list[str]], None]] = field(default_factory=list)  # file, why, rules
    buried: list[Callable[[str, str, str], None]] = field(default_factory=list)  # subscription, message id, why
