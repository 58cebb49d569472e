"""`python -m tests.sim`: many seeds, or one of them with every step told.

python -m tests.sim --seeds 100000 --workers 2
python -m tests.sim --seed 4711 -v
"""

import argparse
import json
import signal
import sys
from dataclasses import replace

from tests.sim.seeds import FEATURES, replay, run_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed only")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON, last")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell every step")
    parser.add_argument(
        "--overwrites", type=float, default=FEATURES.overwrites, help="share of files that are written again"
    )
    options = parser.parse_args()
    features = replace(FEATURES, overwrites=options.overwrites)
    if options.seed is not None:
        return replay(options.seed, verbose=options.verbose, features=features)
    for stop in (signal.SIGINT, signal.SIGTERM):  # a run in the background would ignore the first
        signal.signal(stop, signal.default_int_handler)
    report = run_many(options.first, options.seeds, workers=options.workers, verbose=options.verbose, features=features)
    print(report.text())
    if options.json:
        print(json.dumps(report.to_json()))
    return 1 if report.failures or report.seeds < options.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
