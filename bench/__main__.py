"""Runs every benchmark, each in a process of its own so that none warms or burdens the next.

Usage: python -m bench [--tiny] [NAME…]     --tiny: only to see that they run

Every benchmark prints a table and, last, one line of JSON; the last line here has all of those under their names.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """Every module here that can be run; `localcloud_storage` and the like are parts of another."""
    found = sorted(path.stem for path in HERE.glob("[a-z]*.py") if "__main__" in path.read_text())
    found.remove("tiny")
    return [name for name in found if not any(name.startswith(f"{whole}_") for whole in found)]


def main(arguments: list[str]) -> int:
    known = names()
    tiny, chosen = "--tiny" in arguments, [one for one in arguments if one != "--tiny"]
    if unknown := [name for name in chosen if name not in known]:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    figures: dict[str, object] = {}
    failed = False
    for name in chosen or known:
        print(f"\n{name}\n{'-' * len(name)}", flush=True)
        last = ""
        what = ["bench.tiny", name] if tiny else [f"bench.{name}"]
        with subprocess.Popen(
            [sys.executable, "-m", *what], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        try:
            figures[name] = json.loads(last)
        except ValueError:
            figures[name] = None
        failed |= process.returncode != 0
    print(json.dumps(figures))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
