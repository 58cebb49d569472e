"""Everything that bqtail (2.10.4) reads and writes, from its source: what docs/migration-from-bqtail.md answers for."""

from typing import Any


def _words(text: str, by: str | None = None) -> list[str]:
    return text.split(by)


RULE_FIELDS: dict[str, Any] = {
    # tail/config: Rule, Destination, Transient, Schema, Split, SideInput, Batch; a value that does something
    "When.Prefix": "/data/",
    "When.Suffix": ".json",
    "When.Filter": r"/data/\d+",
    "When.Exclusion": "tmp",
    "When.Directory": False,
    "Disabled": True,
    "Async": True,
    "OnSuccess": [{"Action": "delete"}],
    "OnFailure": [{"Action": "delete"}],
    "OnLoad": {"Action": "delete"},
    "CounterURL": "gs://b/c",
    "Info.Workflow": "w",
    "Info.Description": "d",
    "Info.ProjectURL": "https://p",
    "Info.LeadEngineer": "me",
    "Info.URL": "gs://b/r.yaml",
    "StalledThresholdInSec": 60,
    "CorruptedFileURL": "gs://b/bad",
    "InvalidSchemaURL": "gs://b/odd",
    "MaxReload": 3,
    "Dest.Table": "d.t",
    "Dest.Partition": "20240131",
    "Dest.Pattern": "/(.+)/",
    "Dest.Parameters.Name": "App",
    "Dest.Parameters.Expression": "$ToLower(X)",
    "Dest.Override": True,
    "Dest.UniqueColumns": ["id"],
    "Dest.Transform": {"name": "UPPER(t.name)"},
    "Dest.SideInputs.Table": "d.side",
    "Dest.SideInputs.From": "SELECT 1 AS id",
    "Dest.SideInputs.Alias": "s",
    "Dest.SideInputs.On": "t.id = s.id",
    "Dest.SideInputs.Inner": True,
    "Dest.AllowFieldAddition": True,
    "Dest.Expiry": "3days",
    "Dest.TransientDataset": "temp",
    "Dest.Transient.Dataset": "temp",
    "Dest.Transient.ProjectID": "p",
    "Dest.Transient.Alias": "x",
    "Dest.Transient.Region": "EU",
    "Dest.Transient.Template": "d.like",
    "Dest.Transient.CopyMethod": "QUERY",
    "Dest.Transient.Criteria": "t.id > 1",
    "Dest.Transient.Balancer.Strategy": "fallback",
    "Dest.Transient.Balancer.ProjectIDs": ["one", "two"],
    "Dest.Transient.Balancer.MaxLoadJobs": 5,
    "Dest.Schema.Template": "d.like",
    "Dest.Schema.Autodetect": True,
    "Dest.Schema.Split.Mapping.When": "MOD(id, 2) = 0",
    "Dest.Schema.Split.Mapping.Then": "d.even",
    "Dest.Schema.Split.ClusterColumns": ["id", "info.key"],
    "Dest.Schema.Split.TimeColumn": "seen",
    "Batch.Window.DurationInSec": 90,
    "Batch.Window.Duration": 90_000_000_000,
    "Batch.MultiPath": True,
    "Batch.UsePatternHash": True,
    "Batch.RollOver": True,
    "Batch.MaxDelayInSec": 5,
    "Batch.Group.DurationInSec": 3600,
    "Batch.Group.OnDone": [{"Action": "delete"}],
    # google.golang.org/api v0.169.0: JobConfigurationLoad, which Destination embeds
    "Dest.SourceFormat": "AVRO",
    "Dest.WriteDisposition": "WRITE_TRUNCATE",
    "Dest.schema": {"fields": [{"name": "id", "type": "INTEGER"}]},
    "Dest.AllowJaggedRows": True,
    "Dest.AllowQuotedNewlines": True,
    "Dest.Autodetect": True,
    "Dest.Clustering": {"fields": ["id"]},
    "Dest.ColumnNameCharacterMap": "V2",
    "Dest.CopyFilesOnly": True,
    "Dest.CreateDisposition": "CREATE_NEVER",
    "Dest.DecimalTargetTypes": ["NUMERIC"],
    "Dest.DestinationEncryptionConfiguration": {"kmsKeyName": "k"},
    "Dest.DestinationTableProperties": {"description": "d"},
    "Dest.Encoding": "ISO-8859-1",
    "Dest.FieldDelimiter": ";",
    "Dest.FileSetSpecType": "FILE_SET_SPEC_TYPE_FILE_SYSTEM_MATCH",
    "Dest.HivePartitioningOptions": {"mode": "AUTO"},
    "Dest.IgnoreUnknownValues": True,
    "Dest.JsonExtension": "GEOJSON",
    "Dest.MaxBadRecords": 3,
    "Dest.NullMarker": "-",
    "Dest.ParquetOptions": {"enumAsString": True},
    "Dest.PreserveAsciiControlCharacters": True,
    "Dest.ProjectionFields": ["a"],
    "Dest.Quote": "'",
    "Dest.RangePartitioning": {"field": "id", "range": {"start": 0, "end": 10, "interval": 1}},
    "Dest.ReferenceFileSchemaUri": "gs://b/s.avro",
    "Dest.SchemaUpdateOptions": ["ALLOW_FIELD_ADDITION"],
    "Dest.SkipLeadingRows": 1,
    "Dest.TimePartitioning": {"type": "DAY"},
    "Dest.UseAvroLogicalTypes": True,
    "Dest.DestinationTable": {"tableId": "x"},
    "Dest.SourceUris": ["gs://b/o"],
    "Dest.SchemaInline": "id:INTEGER",
    "Dest.SchemaInlineFormat": "x",
    "Dest.ConnectionProperties": [],
    "Dest.CreateSession": True,
}
BESIDES: dict[str, dict[str, Any]] = {
    # what a field needs to make sense
    "Dest.Parameters.Name": {"Dest.Parameters.Expression": "x"},
    "Dest.Parameters.Expression": {"Dest.Parameters.Name": "App"},
    "Dest.SideInputs.Table": {"Dest.SideInputs.Alias": "s", "Dest.SideInputs.On": "t.id = s.id"},
    "Dest.SideInputs.From": {"Dest.SideInputs.Alias": "s", "Dest.SideInputs.On": "t.id = s.id"},
    "Dest.SideInputs.Alias": {"Dest.SideInputs.Table": "d.side", "Dest.SideInputs.On": "t.id = s.id"},
    "Dest.SideInputs.On": {"Dest.SideInputs.Table": "d.side", "Dest.SideInputs.Alias": "s"},
    "Dest.SideInputs.Inner": {
        "Dest.SideInputs.Table": "d.side",
        "Dest.SideInputs.Alias": "s",
        "Dest.SideInputs.On": "t.id = s.id",
    },
    "Dest.Schema.Split.Mapping.When": {"Dest.Schema.Split.Mapping.Then": "d.even"},
    "Dest.Schema.Split.Mapping.Then": {"Dest.Schema.Split.Mapping.When": "id = 1"},
    "Dest.Schema.Split.ClusterColumns": {"Dest.Schema.Split.Mapping": [{"When": "id = 1", "Then": "d.a"}]},
    "Dest.Schema.Split.TimeColumn": {"Dest.Schema.Split.Mapping": [{"When": "id = 1", "Then": "d.a"}]},
}
LISTS = ("Dest.Parameters", "Dest.SideInputs", "Dest.Schema.Split.Mapping")
ACTION_FIELDS: dict[str, Any] = {
    # task.Action, task.When
    "Action": None,
    "Request": None,
    "Action.When.Exists": {"When": {"Exists": "d.x"}},
    "Action.OnSuccess": {"OnSuccess": [{"Action": "delete"}]},
    "Action.OnFailure": {"OnFailure": [{"Action": "delete"}]},
    "Action.Meta": {"Meta": {"Step": 1}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    # service/*: the requests of each action
    "delete": {"URLs": ["gs://b/o"], "SourceURL": "gs://b/o"},
    "move": {
        "SourceURL": "gs://b/o",
        "SourceURLs": ["gs://b/o"],
        "DestURL": "gs://b/done",
        "IsDestAbsoluteURL": True,
    },
    "query": {
        "SQL": "SELECT 1 AS n",
        "SQLURL": "gs://elsewhere/q.sql",
        "Dest": "d.x",
        "Append": True,
        "Template": "d.like",
        "UseLegacy": True,
        "DatasetID": "d",
    },
    "copy": {
        "Source": "d.s",
        "Dest": "d.x",
        "Append": True,
        "Template": "d.like",
        "MultiPartition": True,
        "PartitionSQL": "SELECT '20240131' AS partition_id",
    },
    "export": {
        "Source": "d.s",
        "DestURL": "gs://b/x.csv",
        "Format": "CSV",
        "Compression": "GZIP",
        "FieldDelimiter": ";",
        "IncludeHeader": True,
        "UseAvroLogicalTypes": True,
        "ProjectID": "p",
    },
    "insert": {
        "Dest": "d.x",
        "SQL": "SELECT 1 AS n",
        "Data": [{"n": 1}],
        "Template": "d.like",
        "UseLegacy": True,
        "ProjectId": "p",
    },
    "drop": {"Table": "d.x", "ProjectID": "p"},
    "call": {
        "URL": "https://h/x",
        "Method": "POST",
        "Body": "b",
        "BodyURL": "gs://elsewhere/b",
        "Auth": True,
        "Scopes": ["s"],
    },
    "push": {"Topic": "t", "ProjectID": "p", "Message": {"a": 1}, "Data": "d", "Attributes": {"a": 1}},
    "notify": {
        "Channels": ["#c"],
        "Title": "t",
        "Message": "m",
        "From": "f",
        "Filename": "n",
        "Body": "b",
        "BodyType": "text",
        "Token": "x",
        "Credentials": {"URL": "gs://b/s.enc", "Key": "r/k", "Parameter": "p"},
        "Error": "e",
        "Response": "r",
        "Source": "s",
        "Root": {},
    },
    "load": {},
    "reload": {},
    "group": {},
    "tableExists": {},
}
NEEDED: dict[str, dict[str, Any]] = {
    "delete": {},
    "move": {"DestURL": "gs://b/done"},
    "query": {"SQL": "SELECT 1 AS n", "Append": True},
    "copy": {"Dest": "d.x", "Append": True},
    "export": {"DestURL": "gs://b/x.csv"},
    "insert": {"Dest": "d.x", "SQL": "SELECT 1 AS n"},
    "drop": {"Table": "d.x"},
    "call": {"URL": "https://h/x"},
    "push": {"Topic": "t"},
    "notify": {"Channels": ["#c"], "Title": "t"},
}
ROUTE_FIELDS: dict[str, Any] = {
    # dispatch/config: Rule, Filter
    "Route.When.Source": "SELECT",
    "Route.When.Dest": "d\\.t$",
    "Route.When.Type": "QUERY",
    "Route.OnSuccess": [{"Action": "delete"}],
    "Route.OnFailure": [{"Action": "delete"}],
    "Route.Info": {"Workflow": "w"},
}
VARIABLES = _words(
    "EventID Date Hour Mod(n) 1 DestTable TempTable URLs LoadURIs TriggerBucket RuleURL JobSource ProjectID "
    "Region ProcessURL DoneProcessURL FailedURL GroupURL GroupID Params Source.URL Source.Time Source.Status "
    "Async StepCount SourceURI JobID Error Response StatusCode Headers Data Body MessageIDs PartitionID "
    "DollarSign"
)
"""stage.Process, load.Job, task and service/bq: what is filled in, and what the documentation names."""
FUNCTIONS = _words(
    "AsInt AsString AsFloat AsFloat32 AsFloat32Ptr AsBool AsMap AsData AsCollection AsJSON Type Join Split Keys "
    "StringKeys Values Length Len IndexOf FormatTime QueryEscape QueryUnescape Base64Encode Base64Decode "
    "Base64RawURLEncode Base64RawURLDecode Base64DecodeText TrimSpace Elapsed Sum Count AsNumber Select Rand "
    "Concat Merge AsStringMap PackInt32sTo64 Replace ToLower ToUpper AsNewLineDelimitedJSON LoadJSON"
)
"""viant/toolbox, data/udf: `Predefined`."""
FLAGS = _words(
    "-r --rule, -V --validate, -v --version, -p --project, -b --bucket, -d --dest, -n --dest-partition, -o "
    "--dest-override, -t --template, -T --transient-template, -D --dedupe-columns, -P --prefix, -S --suffix, -R, "
    "-s --src, -f --source-format, -w --window, -l --logging, -H --history, -X --stream, -c --client, -a "
    "--autodetect, -i --ops",
    ", ",
)
"""cmd/option; the long name of -R has spaces."""
ENVIRONMENT = _words(
    "CONFIG GCLOUD_PROJECT GOOGLE_CLOUD_PROJECT GCP_PROJECT FUNCTION_REGION GOOGLE_CLOUD_REGION MAX_RETRIES "
    "GS_MAX_RETRIES LOGGING FUNCTION_TIMEOUT_SEC GOOGLE_APPLICATION_CREDENTIALS GCLOUD_AUTH"
)
CONFIGURATION = _words(
    "URL RunOnce ProjectID Region AsyncTaskURL SyncTaskURL ActiveLoadProcessURL DoneLoadProcessURL JournalURL "
    "TriggerBucket LoadProcessPrefix PostJobPrefix BatchPrefix BqJobInfoPath BqBatchInfoPath ErrorURL "
    "CorruptedFileURL InvalidSchemaURL SlackCredentials MaxRetries MaxTriggerDelayMs RulesURL CheckInMs Rules "
    "Disabled Async TimeToLiveInMin MaxConcurrentSQL MaxConcurrentLoad MaxConcurrentJobs DeferTaskURL Routes"
)
"""base.Config, tail.Config, dispatch.Config, and names of its documentation and first version."""
OBJECTS = _words(
    "Running/ Done/ failed performance.json retry/counter retry/data .err .rsp proc/ <CorruptedFileURL> "
    "<InvalidSchemaURL> .win .wis .loc .grp proj: _load_/ _bqjob_/ _batch_/ <BqJobInfoPath> <BqBatchInfoPath> "
    "_.cache <RulesURL>"
)
"""What its folders hold, by the part of the name that tells."""
