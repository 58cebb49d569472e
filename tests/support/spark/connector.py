"""The Cloud Storage connector for Spark, as the tests use it: the image's own where Maven can get it.

The image's version is pinned in the Dockerfile and nowhere else. It is looked for in Maven's repository on this machine
and fetched with `mvn` where there is one. Elsewhere PyPI's `pyspark-gcs` stands in, years older; every run of
the tests says at its top which one it was.
"""

import re
import shutil
import subprocess
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tests.support.places import ROOT

from ingestd.spark.session.masters import storage_connector

_DOCKERFILE = ROOT / "Dockerfile"
_PATIENCE = 180


def coordinates() -> tuple[str, str, str]:
    """Group, artifact and version of the image's connector."""
    found = re.search(r"^ARG GCS_CONNECTOR=([\w.-]+):([\w.-]+):([\w.-]+):jar:shaded$", _DOCKERFILE.read_text(), re.M)
    assert found is not None
    return found[1], found[2], found[3]


def kept() -> Path:
    """Where Maven keeps it, once it was fetched."""
    group, name, version = coordinates()
    folder = Path.home() / ".m2/repository" / group.replace(".", "/") / name / version
    return folder / f"{name}-{version}-shaded.jar"


@lru_cache
def shipped() -> Path | None:
    """The image's connector; None where it cannot be had."""
    if not kept().exists() and shutil.which("mvn"):
        artifact = f"{':'.join(coordinates())}:jar:shaded"
        wanted = re.search(r"org\.apache\.maven\.plugins:maven-dependency-plugin:[\d.]+", _DOCKERFILE.read_text())
        assert wanted is not None
        command = ["mvn", "-B", "-q", f"{wanted[0]}:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return None
    return kept() if kept().exists() else None


def told() -> str:
    """One line for the top of a test run."""
    version = coordinates()[2]
    if kept().exists() or shutil.which("mvn"):
        return f"Cloud Storage connector of the Spark tests: {version}, as in the image"
    return f"Cloud Storage connector of the Spark tests: PyPI's, not the image's {version}: Maven is not installed here"


def connector(endpoint: str) -> dict[str, str]:
    """What a session is told to reach the local Storage with it."""
    jar = shipped()
    if jar is not None:
        return {"spark.jars": str(jar), **storage_connector(endpoint)}
    found = find_spec("pyspark_gcs")
    assert found is not None and found.origin is not None
    (jar,) = (Path(found.origin).parent / "jars").glob("*.jar")
    return {"spark.jars": str(jar), **storage_connector(endpoint), "spark.hadoop.fs.gs.project.id": "test-project"}
