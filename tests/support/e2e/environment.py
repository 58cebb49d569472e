"""The environment of somebody who is not developing ingestd."""

import os

from tests.support.places import ROOT

# What a developer's shell and this test run have and a newcomer's has not. SPARK_SUBMIT_OPTS stays: how little a JVM
# compiles changes what its start costs, and nothing else.
LEAKS = ("VIRTUAL_ENV", "PYTHON", "COV", "COVERAGE", "PYTEST", "INGESTD", "CLOUDSDK", "GOOGLE", "MAKE", "MFLAGS")


def newcomers_environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS)}
    kept = [folder for folder in environ["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT))]
    return {**environ, "PATH": os.pathsep.join(kept)}
