"""Flags as bqtail's command writes them: `-s=folder -w=15 -h=~/.bqtail`.

What follows a short flag's equals sign is its value, a bare number is of seconds, and the history, which bqtail's own
documentation spells `-h=`, is told from a call for help by having one.
"""

import re
from datetime import timedelta
from typing import Any

from typer.core import TyperCommand

from ingestd.cli.terminal import duration

_SHORT = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)
_OTHERWISE = {"-h": "-H"}


class BqtailCommand(TyperCommand):
    """A command that is called as bqtail is, or as every other one here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        valued = {flag for one in self.get_params(ctx) if not getattr(one, "is_flag", True) for flag in (*one.opts,)}
        return super().parse_args(ctx, as_we_write(args, valued))


def as_we_write(args: list[str], valued: set[str]) -> list[str]:
    """`-x=value` in two words where `-x` takes a value; a value itself stays whatever it looks like."""
    written: list[str] = []
    words = iter(args)
    for word in words:
        found = _SHORT.fullmatch(word)
        flag = _OTHERWISE.get(found[1], found[1]) if found else ""
        if found and flag in valued:
            written += [flag, found[2]]
        elif word in valued:
            written += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--":
            return [*written, word, *words]
        else:
            written.append(word)
    return written


def window(text: str | timedelta) -> timedelta:
    """A duration, or bqtail's number of seconds."""
    return timedelta(seconds=int(text)) if isinstance(text, str) and text.isdecimal() else duration(text)
