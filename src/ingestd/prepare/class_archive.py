"""Half the start-up time of a JVM goes into loading the same thousands of classes: an archive of them is kept.

Java writes the archive when a JVM exits by itself, and maps it into the next one. A first session pays some seconds at
its end for it; an archive that does not fit (another Java, another Spark) is ignored by Java, and one that is written
while we die is never used, because it gets its name only after the JVM has ended well.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ingestd.prepare.java import Java


@dataclass(frozen=True, slots=True)
class ClassArchive:
    path: Path
    draft: Path
    supported: bool

    @classmethod
    def of(cls, java: Java, spark_home: Path, cache: Path) -> "ClassArchive":
        jars = sorted((jar.name, jar.stat().st_size) for jar in (spark_home / "jars").glob("*.jar"))
        key = hashlib.sha256(repr((java.home, java.version, spark_home, jars)).encode()).hexdigest()[:16]
        path = cache / f"spark-classes-{key}.jsa"
        # Java builds on the archive of its own classes; a slimmed runtime may come without.
        supported = any((java.home / "lib" / "server").glob("classes*.jsa"))
        return cls(path, path.with_suffix(f".{os.getpid()}"), supported)

    @property
    def wanted(self) -> bool:
        """Whether this JVM should write one when it exits."""
        return self.supported and not self.path.is_file()

    def options(self) -> list[str]:
        """Java's options: use the archive, or write it; none where nothing can be kept."""
        if not self.supported:
            return []
        if self.path.is_file():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        if not os.access(self.path.parent, os.W_OK):
            return []
        return [f"-XX:ArchiveClassesAtExit={self.draft}"]

    def settle(self, exit_code: int | None) -> None:
        """After the JVM is gone: keep what it wrote if it ended well."""
        if not self.draft.exists():
            return
        if exit_code == 0 and not self.path.exists():
            self.draft.replace(self.path)
        else:
            self.draft.unlink()
