"""YAML and JSON files read with places, validated by models, refused with messages that help.

    documents = read_documents(data, "rules/a.yaml")
    model = validate(MyModel, documents[0], "rules/a.yaml")

Both raise `DocumentError` and nothing else; it lists every problem of the file.
"""

from ingestd.documents.located import LocatedDict, LocatedList, PlainText, dotted, locate, native
from ingestd.documents.models import AnyValue, Document, Many, camel, problems_of, validate
from ingestd.documents.problems import DocumentError, Place, Problem, Severity, did_you_mean
from ingestd.documents.reading import read_documents

__all__ = [
    "AnyValue",
    "Document",
    "DocumentError",
    "LocatedDict",
    "LocatedList",
    "Many",
    "Place",
    "PlainText",
    "Problem",
    "Severity",
    "camel",
    "did_you_mean",
    "dotted",
    "locate",
    "native",
    "problems_of",
    "read_documents",
    "validate",
]
