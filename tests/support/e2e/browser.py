"""Where Chromium is. Debian's does; Playwright's own download is used where somebody has installed it."""

import os
import shutil
import sys
from pathlib import Path

LAUNCH = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
]  # containers have neither sandbox nor much /dev/shm
MISSING = "no Chromium found: `make browser` installs one, or set CHROMIUM=/path/to/chromium"


def chromium() -> str | None:
    """The browser to use, or None."""
    named = os.environ.get("CHROMIUM", "")
    candidates = [named] if named else ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"]
    for name in candidates:
        if found := shutil.which(name):
            return found
    downloads = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright")
    return next((str(path) for path in sorted(downloads.glob("chromium-*/chrome-linux*/chrome"), reverse=True)), None)


if __name__ == "__main__":
    found = chromium()
    sys.exit(MISSING) if found is None else print(found)
