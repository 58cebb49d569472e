"""Bytes or text of a YAML or JSON file to located data."""

from typing import Any

from ingestd.documents.json_reader import read_json
from ingestd.documents.problems import DocumentError, Problem
from ingestd.documents.yaml_reader import read_yaml


def read_documents(data: bytes | str, file: str) -> list[Any]:
    """Every document of a file: one for JSON, one per `---` section for YAML. Raises DocumentError and nothing else."""
    text = _decode(data, file) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    if file.lower().endswith(".json"):
        if not text.strip():
            return []
        return [read_json(text, file)]
    try:
        return read_yaml(text, file)
    except DocumentError as error:
        # JSON is YAML but for corners such as tabs; whoever put JSON into a .yaml file meant JSON.
        if text.lstrip()[:1] in {"{", "["}:
            try:
                return [read_json(text, file)]
            except DocumentError:
                raise error from None
        raise


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise DocumentError([Problem(file, line, column, "", "not UTF-8 text; save the file as UTF-8")]) from None
