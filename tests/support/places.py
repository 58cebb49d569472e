"""Where the repository is, so that tests may move without counting folders again."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
