"""Google's own implementation of GoogleSQL, asked over a pipe: one expression in JSON per line, one answer per line.

Runs in an environment of its own (`make oracle`), which has the package `zetasql`: Google's analyzer and its reference
implementation as WebAssembly. Nothing of the project is imported here, and nothing of the project imports it.

    python -m tests.googlesql.reference FOLDER    # FOLDER keeps the compiled module, which takes a minute to make
"""

import json
import sys
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

# What GoogleSQL can and BigQuery cannot.
_ABSENT = frozenset(
    [
        "TIMESTAMP_NANOS",
        "TIMESTAMP_PICOS",
        "TIMESTAMP_PRECISION",
        "ARRAY_EQUALITY",
        "ARRAY_ORDERING",
        "ARRAY_GREATEST_LEAST",
        "MAP_TYPE",
        "JSON_TYPE_COMPARISON",
        "IMPLICIT_COERCION_STRING_LITERAL_TO_BYTES",
        "UUID_TYPE",
        "STRUCT_POSITIONAL_ACCESSOR",
        "LATERAL_JOIN",
        "STRUCT_BRACED_CONSTRUCTORS",
        "BRACED_PROTO_CONSTRUCTORS",
        "DISABLE_ARRAY_MIN_AND_MAX",
        "DISABLE_ARRAY_SUM_AND_AVG",
        "TOKENIZED_SEARCH",
        "PROTO_BASE",
        "EXTRACT_FROM_PROTO",
    ]
)
_KINDS = {"DOUBLE": "FLOAT64", "FLOAT": "FLOAT64"}
_EPOCH = date(1970, 1, 1)


class Reference:
    """Analyzes and evaluates expressions without columns."""

    def __init__(self, folder: Path) -> None:
        _keep_compiled(folder)
        import zetasql.types as types  # type: ignore[import-not-found]
        from zetasql.api import CatalogBuilder  # type: ignore[import-not-found]
        from zetasql.core import ServerError, ZetaSqlLocalService  # type: ignore[import-not-found]

        self._error = ServerError
        language = types.LanguageOptions.maximum_features()
        absent = {
            int(feature)
            for feature in types.LanguageFeature
            if feature.name.removeprefix("FEATURE_").removeprefix("V_1_").lstrip("1234_") in _ABSENT
        }
        language.enabled_language_features = [
            item for item in language.enabled_language_features if int(item) not in absent
        ]
        language.product_mode = types.ProductMode.PRODUCT_EXTERNAL
        self._options = types.AnalyzerOptions(language_options=language, default_timezone="UTC")
        self._service = ZetaSqlLocalService.get_instance()
        functions = types.ZetaSQLBuiltinFunctionOptions(language_options=language)
        catalog = CatalogBuilder("googlesql").with_builtin_functions(functions).build()
        self._catalog = self._service.register_catalog(simple_catalog=catalog).registered_id

    def ask(self, expression: str) -> dict[str, Any]:
        """`type` and `value`, or `refused` (by the analyzer), or `error` (when it is evaluated)."""
        try:
            answer = self._service.prepare(
                sql=expression, options=self._options, registered_catalog_id=self._catalog
            ).prepared
        except self._error as error:
            return {"refused": str(error)}
        kind = _kind(answer.output_type)
        try:
            value = self._evaluate(answer.prepared_expression_id)
        except self._error as error:
            return {"type": kind, "error": str(error)}
        finally:
            self._service.unprepare(prepared_expression_id=answer.prepared_expression_id)
        return {"type": kind, "value": _text(value, answer.output_type)}

    def _evaluate(self, prepared: int) -> Any:
        """The value as protobuf has it: the package's own classes lose times and empty arrays."""
        from zetasql.wasi._pb2.zetasql.local_service import local_service_pb2  # type: ignore[import-not-found]

        request = local_service_pb2.EvaluateRequest(prepared_expression_id=prepared)
        answer = local_service_pb2.EvaluateResponse
        return self._service.wasm_client.call_grpc_func("ZetaSqlLocalService_Evaluate", request, answer).value


def _keep_compiled(folder: Path) -> None:
    """The module is compiled once: that takes a minute of processor time, reading it again takes none."""
    import wasmtime  # type: ignore[import-not-found]
    from zetasql.core import wasm_client

    kept = folder / f"zetasql-{version('wasmtime')}.cwasm"

    class Kept(wasmtime.Module):  # type: ignore[misc]
        @classmethod
        def from_file(cls, engine: Any, path: str) -> Any:
            if not kept.exists():
                made = kept.with_suffix(".new")
                made.write_bytes(wasmtime.Module.from_file(engine, path).serialize())
                made.rename(kept)
            return wasmtime.Module.deserialize_file(engine, str(kept))

    wasm_client.Module = Kept


def _kind(kind: Any) -> str:
    name = str(kind.type_kind.name).removeprefix("TYPE_")
    if name == "ARRAY":
        return f"ARRAY<{_kind(kind.array_type.element_type)}>"
    if name == "STRUCT":
        fields = (f"{field.field_name or ''} {_kind(field.field_type)}".strip() for field in kind.struct_type.field)
        return f"STRUCT<{', '.join(fields)}>"
    return _KINDS.get(name, name)


def _text(value: Any, kind: Any) -> str:
    """The value as the tables of cases write it."""
    name = str(kind.type_kind.name).removeprefix("TYPE_")
    if value.WhichOneof("value") is None:
        return "NULL"
    match name:
        case "ARRAY":
            element = kind.array_type.element_type
            return f"[{', '.join(_text(item, element) for item in value.array_value.element)}]"
        case "STRUCT":
            fields = zip(value.struct_value.field, kind.struct_type.field, strict=True)
            return f"({', '.join(_text(item, field.field_type) for item, field in fields)})"
        case "INT64":
            return str(value.int64_value)
        case "BOOL":
            return str(value.bool_value).lower()
        case "DOUBLE" | "FLOAT":
            return repr(value.double_value if name == "DOUBLE" else value.float_value)
        case "STRING":
            return json.dumps(value.string_value, ensure_ascii=False)
        case "BYTES":
            return f"x{value.bytes_value.hex()}"
        case "NUMERIC":
            return _decimal(value.numeric_value, 9)
        case "BIGNUMERIC":
            return _decimal(value.bignumeric_value, 38)
        case "DATE":
            return (_EPOCH + timedelta(days=value.date_value)).isoformat()
        case "TIME":
            return _clock(value.time_value >> 30, value.time_value & (1 << 30) - 1)
        case "DATETIME":
            seconds = value.datetime_value.bit_field_datetime_seconds
            day = f"{seconds >> 26:04d}-{seconds >> 22 & 15:02d}-{seconds >> 17 & 31:02d}"
            return f"{day} {_clock(seconds & (1 << 17) - 1, value.datetime_value.nanos)}"
        case "TIMESTAMP":
            stamp = value.timestamp_value
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp.seconds)
            return f"{moment.date().isoformat()} {moment.time().isoformat()}{_fraction(stamp.nanos)}+00"
        case "JSON":
            return json.dumps(json.loads(value.json_value), ensure_ascii=False, sort_keys=True)
        case "INTERVAL":
            return f"x{value.interval_value.hex()}"
    return f"a value of {name}"


def _decimal(data: bytes, digits: int) -> str:
    number = int.from_bytes(data, "little", signed=True)
    whole, fraction = divmod(abs(number), 10**digits)
    return f"{'-' if number < 0 else ''}{whole}{f'.{fraction:0{digits}d}'.rstrip('0').rstrip('.')}"


def _clock(bits: int, nanos: int) -> str:
    return f"{bits >> 12:02d}:{bits >> 6 & 63:02d}:{bits & 63:02d}{_fraction(nanos)}"


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0").rstrip(".") if nanos else ""


def main(folder: Path) -> None:
    reference = Reference(folder)
    for line in sys.stdin:
        print(json.dumps(reference.ask(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
