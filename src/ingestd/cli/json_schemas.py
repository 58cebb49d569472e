"""JSON Schemas of rules, settings and `_config/load.json`, made from the models that read them: for editors.

A schema accepts whatever the loader accepts (keys and choices in any case, single values for lists, numbers as text,
null for "not given") and refuses what can be said without running code: unknown keys, wrong types, words that are no
choice, missing keys. Contradictions between keys, patterns and SQL are the loader's (`ingestd rules lint`). Draft 7:
what editors know best.
"""

import json
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonRef, JsonSchemaValue
from pydantic_core import core_schema

from ingestd.documents.models import Document, Many, spellings
from ingestd.model.quantities import ByteSize, Duration, TimeExpression
from ingestd.rules.fields import AnyCase, NanosecondsOr
from ingestd.rules.load_options import LoadOptions
from ingestd.rules.routes import RoutesFile
from ingestd.rules.schema import RuleSpec
from ingestd.settings import Settings
from ingestd.settings_loader import texts_of

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"
_DEFINITIONS = "#/definitions/{model}"
_NULL: Schema = {"type": "null"}
_BOOLEANS = ("0", "1", "f", "false", "n", "no", "off", "on", "t", "true", "y", "yes")
_UNITS = r"[0-9]+(\.[0-9]+)?\s*(us|ms|s|m|h|d|w)\s*"


def _any_case(text: str) -> str:
    """A pattern for the text in any case: editors know no flags."""
    return "".join(f"[{one.upper()}{one.lower()}]" if one.isalpha() else re.escape(one) for one in text)


def _either(patterns: Iterable[str]) -> str:
    return f"^({'|'.join(patterns)})$"


def _has(pattern: str) -> Schema:
    """That a key like this is there: `required` knows only exact ones."""
    return {"not": {"propertyNames": {"not": {"pattern": pattern}}}}


_DURATION: Schema = {
    "description": "A duration: 90s, 5m, 1h30m.",
    "anyOf": [{"type": "string", "pattern": rf"^\s*(0|({_UNITS})+)$"}, {"const": 0}],
}
_SIZE: Schema = {
    "description": "A size: 64MiB, 500MB, or bytes.",
    "anyOf": [
        {"type": "integer"},
        {"type": "string", "pattern": r"^\s*[0-9]+((\.[0-9]+)?\s*[kKmMgGtTpP]?[iI]?[bB])?\s*$"},
    ],
}
_EXPRESSION: Schema = {
    "description": "A duration: 2hours, 3 days, 90s.",
    "anyOf": [{"type": "string", "pattern": r"^\s*([0-9.]*\s*[A-Za-z][A-Za-z0-9.\s]*|0)$"}, {"const": 0}],
}
_NANOSECONDS: Schema = {
    "description": "A duration: 90s, 5m, 1h30m; a bare number is nanoseconds.",
    "anyOf": [{"type": "string", "pattern": rf"^\s*([0-9]+|({_UNITS})+)$"}, {"type": "integer", "minimum": 0}],
}


def _function(annotated: Any) -> Any:
    """The first validator of an annotated type."""
    return annotated.__metadata__[0].func


_WRITTEN: dict[Any, Schema] = {
    _function(Duration): _DURATION,
    _function(ByteSize): _SIZE,
    _function(TimeExpression): _EXPRESSION,
    NanosecondsOr.func: _NANOSECONDS,
}


class _Written(GenerateJsonSchema):
    """The schema of what is written, where pydantic's own is about what is made of it."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012

    def __init__(self, *arguments: Any, single_items: bool = False, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._single_items = single_items  # settings take one value for any list, rules where `Many` says so

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    # Scalars: what is written without quotes is text until a field says what it means.

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        found = super().str_schema(schema)
        pattern, longest = found.get("pattern", ""), found.get("maxLength", 1 << 30)
        bare = {"number": "0", "boolean": "true", "null": "null"}
        fitting = [kind for kind, text in bare.items() if re.search(pattern, text) and (len(text) <= longest)]
        return {**found, "type": ["string", *fitting]}

    def path_schema(self, schema: Any) -> JsonSchemaValue:
        return {"type": ["string", "number", "boolean"]}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        least = schema.get("ge", -1)
        digits = {0: r"\+?[0-9][0-9_]*|-0+", 1: r"\+?0*[1-9][0-9_]*"}.get(max(min(least, 1), -1), r"[-+]?[0-9][0-9_]*")
        return {"anyOf": [super().int_schema(schema), {"type": "string", "pattern": rf"^\s*({digits})(\.0*)?\s*$"}]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"type": "string", "pattern": r"^\s*[-+]?[0-9_.]+([eE].*)?$"}]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        words = {"type": "string", "pattern": _either(map(_any_case, _BOOLEANS))}
        return {"anyOf": [{"type": "boolean"}, words, {"enum": [0, 1]}]}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """In any case where the choice says so, which `_missing_` does."""
        cls: type[Enum] = schema["cls"]
        values = [member.value for member in schema["members"]]
        if "_missing_" not in {name for base in cls.__mro__ for name in vars(base) if base.__module__ != "enum"}:
            return {"type": "string", "enum": values}
        further = [text for member in schema["members"] for text in getattr(member, "other_spellings", ())]
        return {
            "anyOf": [{"enum": values}, {"type": "string", "pattern": _either(map(_any_case, [*values, *further]))}]
        }

    # Shapes

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        function = schema["function"]["function"]
        inner = self.generate_inner(schema["schema"])
        if function in _WRITTEN:
            return dict(_WRITTEN[function])
        if function is _function(Many):
            return {"anyOf": [inner, inner["items"]]} if "items" in inner else inner
        if function is AnyCase.func:
            choices = self.get_schema_from_definitions(JsonRef(inner["$ref"])) if "$ref" in inner else inner
            assert choices is not None
            words = [r"\s+".join(map(_any_case, value.split())) for value in choices["enum"]]
            return {"anyOf": [inner, {"type": "string", "pattern": rf"^\s*({'|'.join(words)})\s*$"}]}
        return inner

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        found = super().tuple_schema(schema)
        return {"anyOf": [found, found["items"]]} if self._single_items and "items" in found else found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])  # defaults are values, not what one writes

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Actions: told apart by their `Action`, so that a mistake is told of the one that is meant."""
        key = _either([_any_case("Action")])
        chosen = []
        for tag, choice in schema["choices"].items():
            meant = {"patternProperties": {key: {"type": "string", "pattern": _either([_any_case(str(tag))])}}}
            chosen.append({"if": {"allOf": [_has(key), meant]}, "then": self.generate_inner(choice)})
        names = [str(tag) for tag in schema["choices"]]
        word = {"anyOf": [{"enum": names}, {"type": "string", "pattern": _either(map(_any_case, names))}]}
        return {
            "type": "object",
            "properties": {"Action": word},
            "patternProperties": {key: word},
            "allOf": [_has(key), *chosen],
        }

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"enum": list(schema["expected"])}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        cls: type[BaseModel] = schema["cls"]
        return _document(cls, found) if issubclass(cls, Document) else _section(cls, found)


def _document(cls: type[Document], found: Schema) -> Schema:
    """Keys in any case, and null for what is not given; what `complete` fills in is not required."""
    ways: dict[str, list[str]] = {}
    for spelling, key in spellings(cls).items():
        ways.setdefault(key, []).append(spelling)
    properties = dict(found.get("properties", {}))
    if "schema" in properties and "Schema" in properties:  # see Dest.resolve_key
        properties["schema"] = {"anyOf": [properties["schema"], properties["Schema"]]}
        ways = {**ways, "Schema": ["schema"], "schema": []}
    if "Action" in properties:
        properties["Action"] = True  # the union has told
    required = [key for key in found.get("required", ()) if key not in cls.completed]
    patterns = {
        key: ("^(?!schema$)" if key == "Schema" and "schema" in properties else "^")
        + f"({'|'.join(map(_any_case, texts))})$"
        for key, texts in ways.items()
        if texts
    }
    return _object(found, properties, patterns, required)


def _section(cls: type[BaseModel], found: Schema) -> Schema:
    """Keys as settings fold them: `journal_url`, `journalUrl`, `JournalURL`."""
    patterns = {}
    for name, info in cls.model_fields.items():
        folded = dict.fromkeys(re.sub("[-_]", "", text).lower() for text in texts_of(name, info))
        ways = ["[-_]*" + "".join(f"{_any_case(one)}[-_]*" for one in text) for text in folded]
        patterns[name] = _either(ways)
    return _object(found, found.get("properties", {}), patterns, found.get("required", ()))


def _object(found: Schema, properties: Schema, patterns: dict[str, str], required: Iterable[str]) -> Schema:
    """An object whose keys are known by patterns; the usual spellings are named for completion."""
    needed = set(required)
    named = {key: _given(one) if key in needed else {"anyOf": [one, _NULL]} for key, one in properties.items()}
    kept: Schema = {key: value for key, value in found.items() if key in ("title", "description")}
    return {
        **kept,
        "type": "object",
        "properties": named,
        "patternProperties": {pattern: named[key] for key, pattern in patterns.items() if key in named},
        "additionalProperties": False,
        **({"allOf": [_has(patterns[key]) for key in properties if key in needed]} if needed else {}),
    }


def _given(schema: Any) -> Schema:
    return {"allOf": [schema, {"not": _NULL}]}


def _made(models: list[type[BaseModel]], top: Callable[[list[Schema]], Schema], title: str, **options: Any) -> Schema:
    """One schema whose top is put together from references to the models'."""
    generator = _Written(by_alias=True, ref_template=_DEFINITIONS, **options)
    inputs = [(index, "validation", model.__pydantic_core_schema__) for index, model in enumerate(models)]
    found, definitions = generator.generate_definitions(inputs)  # type: ignore[arg-type]
    schemas = [dict(found[index, "validation"]) for index in range(len(models))]
    whole = {"$schema": _DIALECT, "title": title, **top(schemas), "definitions": definitions}
    return _Shared().out_of(_with_bare_secrets(whole))


def _with_bare_secrets(schema: Any) -> Any:
    """Secrets are text, too: `token: 123` is one."""
    if not isinstance(schema, dict):
        return schema
    made = _mapped(schema, _with_bare_secrets)
    return {**made, "type": ["string", "number", "boolean"]} if made.get("format") == "password" else made


class _Shared:
    """Parts that stand in several places, written once: actions hold actions, and keys are listed twice."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._definitions: Schema = {}

    def out_of(self, schema: Schema) -> Schema:
        self._count(schema)
        return {**self._replaced(schema, top=True), "definitions": self._all(schema["definitions"])}

    def _all(self, given: Schema) -> Schema:
        kept = {name: self._replaced(one, top=True) for name, one in given.items()}
        return {**kept, **self._definitions}

    def _count(self, schema: Any) -> None:
        for part in _parts(schema):
            text = json.dumps(part, sort_keys=True)
            self._seen[text] = self._seen.get(text, 0) + 1
            if self._seen[text] == 1:
                self._count(part)

    def _replaced(self, schema: Any, *, top: bool = False) -> Any:
        if not isinstance(schema, dict):
            return schema
        text = json.dumps(schema, sort_keys=True)
        if top or self._seen.get(text, 0) < 2 or len(text) < _WORTH_SHARING:
            return _mapped(schema, self._replaced)
        if text not in self._names:
            self._names[text] = name = f"Shared{len(self._names) + 1}"
            self._definitions[name] = _mapped(schema, self._replaced)
        return {"$ref": _DEFINITIONS.format(model=self._names[text])}


_WORTH_SHARING = 120
_MAPS = ("properties", "patternProperties", "definitions")
_LISTS = ("anyOf", "allOf", "oneOf")
_SINGLE = ("items", "not", "if", "then", "else", "additionalProperties", "propertyNames")


def _parts(schema: Any) -> list[Any]:
    """The schemas right below this one."""
    if not isinstance(schema, dict):
        return []
    found = [one for key in _MAPS for one in schema.get(key, {}).values()]
    found += [one for key in _LISTS for one in schema.get(key, ())]
    return [one for one in [*found, *(schema[key] for key in _SINGLE if key in schema)] if isinstance(one, dict)]


def _mapped(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """The schema with those below it changed."""
    made: Schema = {}
    for key, value in schema.items():
        if key in _MAPS:
            made[key] = {name: change(one) for name, one in value.items()}
        elif key in _LISTS:
            made[key] = [change(one) for one in value]
        else:
            made[key] = change(value) if key in _SINGLE else value
    return made


def rules_schema() -> Schema:
    def top(found: list[Schema]) -> Schema:
        rule, routes = found
        one = {"if": _has(_either([_any_case("Routes")])), "then": routes, "else": rule}
        return {"if": {"type": "array"}, "then": {"items": one}, "else": one}

    return _made([RuleSpec, RoutesFile], top, "Rules of ingestd: a rule, a list of rules, or routes")


def settings_schema() -> Schema:
    return _made([Settings], lambda found: {"allOf": found}, "Settings of ingestd", single_items=True)


_OURS: Schema = {
    "destinationTable": {
        "description": "Overrides project, dataset or table, each on its own.",
        "type": ["object", "null"],
        "properties": {key: {"type": "string"} for key in ("projectId", "datasetId", "tableId")},
        "additionalProperties": False,
    },
    "destinationRegex": {"description": "RE2, from the start of the path.", "type": ["string", "null"]},
    "dataSourceName": {"description": "Part of the job's id.", "type": ["string", "null"]},
    "labels": {"type": ["object", "null"]},
    "sourceUris": {"description": "Ignored: the files of the folder are loaded."},
}


def load_schema() -> Schema:
    """`load.json`: BigQuery's `JobConfigurationLoad`, with its own spelling of keys for completion."""

    title = "_config/load.json of ingestd: BigQuery's JobConfigurationLoad, and a few more"
    made = _made([LoadOptions], lambda _: {}, title)
    options = made["definitions"].pop("LoadOptions")
    usual = {key[0].lower() + key[1:]: one for key, one in options["properties"].items()}
    return {**made, **options, "title": title, "properties": {**usual, **_OURS}}


SCHEMAS: dict[str, Callable[[], Schema]] = {"rules": rules_schema, "settings": settings_schema, "load": load_schema}
