"""BigQuery's `JobConfigurationLoad`, given flat in `Dest`: typed, so that a slip is found at load and not by a job.

Names and meaning are BigQuery's own; keys may be written in either case (`SkipLeadingRows`, `skipLeadingRows`).
"""

from typing import Any

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from ingestd.documents import AnyValue, Document, Many
from ingestd.rules.fields import Choice, Int64


class BigQueryResource(Document):
    """A part of a BigQuery REST resource; dumps with the API's own names."""

    model_config = ConfigDict(alias_generator=to_camel)


class SourceFormat(Choice):
    CSV = "CSV"
    NEWLINE_DELIMITED_JSON = "NEWLINE_DELIMITED_JSON"
    AVRO = "AVRO"
    PARQUET = "PARQUET"
    ORC = "ORC"
    DATASTORE_BACKUP = "DATASTORE_BACKUP"


class WriteDisposition(Choice):
    WRITE_APPEND = "WRITE_APPEND"
    WRITE_TRUNCATE = "WRITE_TRUNCATE"
    WRITE_TRUNCATE_DATA = "WRITE_TRUNCATE_DATA"
    WRITE_EMPTY = "WRITE_EMPTY"


class CreateDisposition(Choice):
    CREATE_IF_NEEDED = "CREATE_IF_NEEDED"
    CREATE_NEVER = "CREATE_NEVER"


class SchemaUpdateOption(Choice):
    ALLOW_FIELD_ADDITION = "ALLOW_FIELD_ADDITION"
    ALLOW_FIELD_RELAXATION = "ALLOW_FIELD_RELAXATION"


class Encoding(Choice):
    UTF_8 = "UTF-8"
    ISO_8859_1 = "ISO-8859-1"
    UTF_16BE = "UTF-16BE"
    UTF_16LE = "UTF-16LE"
    UTF_32BE = "UTF-32BE"
    UTF_32LE = "UTF-32LE"


class DecimalTargetType(Choice):
    NUMERIC = "NUMERIC"
    BIGNUMERIC = "BIGNUMERIC"
    STRING = "STRING"


class PartitioningType(Choice):
    HOUR = "HOUR"
    DAY = "DAY"
    MONTH = "MONTH"
    YEAR = "YEAR"


class HiveMode(Choice):
    AUTO = "AUTO"
    STRINGS = "STRINGS"
    CUSTOM = "CUSTOM"


class FileSetSpec(Choice):
    FILE_SYSTEM_MATCH = "FILE_SET_SPEC_TYPE_FILE_SYSTEM_MATCH"
    NEW_LINE_DELIMITED_MANIFEST = "FILE_SET_SPEC_TYPE_NEW_LINE_DELIMITED_MANIFEST"


class JsonExtension(Choice):
    GEOJSON = "GEOJSON"


class MapTargetType(Choice):
    UNSPECIFIED = "MAP_TARGET_TYPE_UNSPECIFIED"
    ARRAY_OF_STRUCT = "ARRAY_OF_STRUCT"


class ColumnNameCharacterMap(Choice):
    UNSPECIFIED = "COLUMN_NAME_CHARACTER_MAP_UNSPECIFIED"
    STRICT = "STRICT"
    V1 = "V1"
    V2 = "V2"


class SourceColumnMatch(Choice):
    UNSPECIFIED = "SOURCE_COLUMN_MATCH_UNSPECIFIED"
    POSITION = "POSITION"
    NAME = "NAME"


class FieldMode(Choice):
    NULLABLE = "NULLABLE"
    REQUIRED = "REQUIRED"
    REPEATED = "REPEATED"


class FieldType(Choice):
    STRING = "STRING"
    BYTES = "BYTES"
    INTEGER = "INTEGER"
    INT64 = "INT64"
    FLOAT = "FLOAT"
    FLOAT64 = "FLOAT64"
    NUMERIC = "NUMERIC"
    BIGNUMERIC = "BIGNUMERIC"
    BOOLEAN = "BOOLEAN"
    BOOL = "BOOL"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    TIME = "TIME"
    DATETIME = "DATETIME"
    INTERVAL = "INTERVAL"
    GEOGRAPHY = "GEOGRAPHY"
    JSON = "JSON"
    RANGE = "RANGE"
    RECORD = "RECORD"
    STRUCT = "STRUCT"


class TableField(BigQueryResource):
    name: str = Field(min_length=1)
    type: FieldType
    mode: FieldMode | None = None
    fields_: Many["TableField"] | None = Field(None, alias="fields")
    description: str | None = None
    policy_tags: AnyValue = None
    data_policies: AnyValue = None
    max_length: Int64 | None = Field(None, ge=1)
    precision: Int64 | None = Field(None, ge=1)
    scale: Int64 | None = Field(None, ge=0)
    rounding_mode: str | None = None
    collation: str | None = None
    default_value_expression: str | None = None
    range_element_type: AnyValue = None

    @model_validator(mode="after")
    def _records_have_fields(self) -> "TableField":
        record = self.type in {FieldType.RECORD, FieldType.STRUCT}
        if record and not self.fields_:
            raise ValueError(f"column {self.name!r} is a {self.type.value} and needs fields")
        if self.fields_ and not record:
            raise ValueError(f"column {self.name!r} has fields, so its type must be RECORD")
        return self


class TableSchema(BigQueryResource):
    fields_: Many[TableField] = Field(alias="fields")


class TimePartitioning(BigQueryResource):
    type: PartitioningType = PartitioningType.DAY
    field: str | None = None
    expiration_ms: Int64 | None = Field(None, ge=1)
    require_partition_filter: bool | None = None


class IntegerRange(BigQueryResource):
    start: Int64
    end: Int64
    interval: Int64 = Field(ge=1)


class RangePartitioning(BigQueryResource):
    field: str
    range: IntegerRange


class Clustering(BigQueryResource):
    fields_: Many[str] = Field(alias="fields", min_length=1, max_length=4)


class EncryptionConfiguration(BigQueryResource):
    kms_key_name: str


class DestinationTableProperties(BigQueryResource):
    friendly_name: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None


class HivePartitioningOptions(BigQueryResource):
    mode: HiveMode = HiveMode.AUTO
    source_uri_prefix: str | None = None
    require_partition_filter: bool | None = None
    fields_: Many[str] | None = Field(None, alias="fields")


class ParquetOptions(BigQueryResource):
    enum_as_string: bool | None = None
    enable_list_inference: bool | None = None
    map_target_type: MapTargetType | None = None


class LoadOptions(Document):
    """Every option of a load job that a rule may set. `SourceUris` and `DestinationTable` are the daemon's."""

    allow_jagged_rows: bool | None = None
    allow_quoted_newlines: bool | None = None
    autodetect: bool | None = None
    clustering: Clustering | None = None
    column_name_character_map: ColumnNameCharacterMap | None = None
    copy_files_only: bool | None = None
    create_disposition: CreateDisposition | None = None
    date_format: str | None = None
    datetime_format: str | None = None
    decimal_target_types: Many[DecimalTargetType] | None = None
    destination_encryption_configuration: EncryptionConfiguration | None = None
    destination_table_properties: DestinationTableProperties | None = None
    encoding: Encoding | None = None
    field_delimiter: str | None = None
    file_set_spec_type: FileSetSpec | None = None
    hive_partitioning_options: HivePartitioningOptions | None = None
    ignore_unknown_values: bool | None = None
    json_extension: JsonExtension | None = None
    max_bad_records: int | None = Field(None, ge=0)
    null_marker: str | None = None
    null_markers: Many[str] | None = None
    parquet_options: ParquetOptions | None = None
    preserve_ascii_control_characters: bool | None = None
    projection_fields: Many[str] | None = None
    quote: str | None = Field(None, max_length=1)
    range_partitioning: RangePartitioning | None = None
    reference_file_schema_uri: str | None = None
    schema_update_options: Many[SchemaUpdateOption] | None = None
    skip_leading_rows: int | None = Field(None, ge=0)
    source_column_match: SourceColumnMatch | None = None
    source_format: SourceFormat | None = None
    table_schema: TableSchema | None = Field(None, alias="schema")
    time_format: str | None = None
    time_partitioning: TimePartitioning | None = None
    time_zone: str | None = None
    timestamp_format: str | None = None
    use_avro_logical_types: bool | None = None
    write_disposition: WriteDisposition | None = None

    def load_configuration(self) -> dict[str, Any]:
        """The given options as the REST API's `configuration.load`, nothing more."""
        given = self.model_dump(mode="json", by_alias=True, include=set(LoadOptions.model_fields), exclude_none=True)
        return {key[0].lower() + key[1:]: value for key, value in given.items()}

    @model_validator(mode="after")
    def _options_agree(self) -> "LoadOptions":
        if self.time_partitioning and self.range_partitioning:
            raise ValueError("TimePartitioning and RangePartitioning exclude each other; keep one")
        if self.null_marker is not None and self.null_markers:
            raise ValueError("NullMarker and NullMarkers exclude each other; keep one")
        if self.table_schema and self.autodetect:
            raise ValueError("'schema' and Autodetect exclude each other; keep one")
        return self
