"""What will hurt: everything that is refused at load, and warnings about rules that load but surprise."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ingestd.documents import DocumentError, Place, Problem, Severity, dotted, locate
from ingestd.model.errors import UnreadableObject
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.actions import Action, CallRequest, CopyRequest, NotifyRequest, QueryRequest
from ingestd.rules.catalogue import Context, names
from ingestd.rules.expansion import unknown_variables
from ingestd.rules.functions import parse_expression, references_of
from ingestd.rules.lint_dest import ExpressionChecks, dest_errors, dest_warnings
from ingestd.rules.lint_types import expression_types, request_types
from ingestd.rules.load_options import LoadOptions, SourceFormat
from ingestd.rules.names import told_apart
from ingestd.rules.parsing import ParsedRule, is_rule_file, parse_file
from ingestd.rules.rule import Rule, plain
from ingestd.rules.source import RuleSource

_CSV_ONLY = ("field_delimiter", "quote", "skip_leading_rows", "allow_jagged_rows", "allow_quoted_newlines")
_DAY_SECONDS = 86_400
_LOADS_PER_DAY = 1_500  # BigQuery: modifications per table and day, failed ones included
_COMPARED = 1_000  # rules that a running daemon compares with each other
_NAMED = 3  # of the rules that have a name in common
_WITHOUT_EFFECT = {
    "RollOver": "bqtail's window reaches back for files that it has not listed, and may load some twice; here each "
    "file is in the window of its own time, a late one in a late window",
    "MaxDelayInSec": "it keeps bqtail's batches from starting all at once; here they take turns by themselves",
}
_DISCARDED = {
    "on_load": "OnLoad is accepted for compatibility and never runs; use OnSuccess",
    "counter_url": "CounterURL is accepted for compatibility and does nothing",
}


async def lint(
    source: RuleSource, checks: ExpressionChecks | None = None, unknown: UnknownKeys = UnknownKeys.TYPOS
) -> list[Problem]:
    """Every problem of every rule file, errors and warnings, in the order of files and lines.

    `checks` reads expressions; without it they are not looked into.
    """
    problems: list[Problem] = []
    parsed: list[ParsedRule] = []
    for url in await rule_files(source):
        try:
            file = await parse_file(url, await source.read(url), source.root, source.read, unknown)
        except DocumentError as error:
            problems += error.problems
            continue
        except UnreadableObject as error:
            problems.append(Problem(url, 0, 0, "", f"cannot be read: {error}"))
            continue
        if not file.rules and not file.routes:
            problems.append(Problem.at(Place(url, 1, 1), "", "there is no rule in this file", Severity.WARNING))
        parsed += file.rules
        problems += file.route_warnings
        for rule in file.rules:
            problems += _warnings(rule, checks)
    called = _called(parsed)
    problems += (problem for _, problem in (*_overlapping(called), *_sharing(called)))
    return sorted(problems)


async def rule_files(source: RuleSource) -> list[str]:
    """The files that may hold rules, going by their names."""
    return sorted(url for url, _ in await source.list() if is_rule_file(url))


def warnings_by_rule(rules: Sequence[ParsedRule]) -> dict[tuple[str, int], list[Problem]]:
    """The warnings of rules that were read already, by the rule's file and place in it.

    Comparing every rule with every other takes too long for a daemon once there are thousands of them.
    """
    found = {(parsed.rule.url, parsed.rule.index): list(_warnings(parsed, None)) for parsed in rules}
    called = _called(rules)
    overlapping = _overlapping(called) if len(rules) <= _COMPARED else ()
    for parsed, problem in (*overlapping, *_sharing(called)):
        found[parsed.rule.url, parsed.rule.index].append(problem)
    return {key: problems for key, problems in found.items() if problems}


def report(problems: Iterable[Problem]) -> str:
    """Lines for a terminal, one per problem, and a summary."""
    found = list(problems)
    errors = sum(problem.severity is Severity.ERROR for problem in found)
    warnings = len(found) - errors
    lines = [str(problem) for problem in found]
    summary = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    return "\n".join([*lines, summary if found else "no problems"])


def _warnings(parsed: ParsedRule, checks: ExpressionChecks | None) -> Iterator[Problem]:
    rule = parsed.rule
    yield from parsed.ignored
    warnings = (
        *_rule_warnings(rule),
        *_batch_warnings(rule),
        *_variable_warnings(rule),
        *_action_warnings(rule),
        *dest_warnings(rule.spec, checks),
        *expression_types(rule),
    )
    # The daemon takes such a rule, since BigQuery's own words about it are not known here; its batches would fail.
    errors = dest_errors(rule.spec, checks) if checks is not None else ()
    for severity, found in ((Severity.WARNING, warnings), (Severity.ERROR, errors)):
        for path, message in found:
            place, known, _ = locate(parsed.document, path, Place(rule.url, 1, 1))
            yield Problem.at(place, dotted(known), message, severity)


def _rule_warnings(rule: Rule) -> Iterator[tuple[tuple[str | int, ...], str]]:
    spec, when = rule.spec, rule.spec.when
    if when.prefix and not when.prefix.startswith("/"):
        yield (
            ("When", "Prefix"),
            f"paths start with '/', so {when.prefix!r} matches nothing; write {'/' + when.prefix!r}",
        )
    if when.directory:
        yield ("When", "Directory"), "only files arrive, so this rule never matches"
    if not (when.prefix or when.suffix or when.filter or spec.dest.pattern):
        yield ("When",), "without Prefix, Suffix or Filter the rule takes every file"
    if not spec.on_failure:
        yield (), "there is no OnFailure: a load that finally fails leaves its files where they are, and tells no one"
    for field, message in _DISCARDED.items():
        if getattr(spec, field) is not None:
            yield (type(spec).model_fields[field].alias or field,), message
    if spec.dest.source_format not in {None, SourceFormat.CSV}:
        for field in _CSV_ONLY:
            if getattr(spec.dest, field) is not None:
                alias = LoadOptions.model_fields[field].alias or field
                yield ("Dest", alias), f"{alias} applies to CSV only, and SourceFormat is {spec.dest.source_format}"


def _batch_warnings(rule: Rule) -> Iterator[tuple[tuple[str | int, ...], str]]:
    batch = rule.spec.batch
    if batch is None:
        return
    seconds = batch.duration.total_seconds()
    loads = math.ceil(_DAY_SECONDS / seconds)
    if loads > _LOADS_PER_DAY:
        arithmetic = f"{_DAY_SECONDS:,} / {seconds:g} = {loads:,} loads a day and destination"
        yield ("Batch", "Window"), f"{arithmetic}; BigQuery allows {_LOADS_PER_DAY:,} per table (58 s always fit)"
    for key, given in (("RollOver", batch.roll_over), ("MaxDelayInSec", batch.max_delay_in_sec)):
        if given:
            yield ("Batch", key), f"{key} has no effect here: {_WITHOUT_EFFECT[key]}"
    group = batch.group
    if group and group.duration_in_sec and group.duration_in_sec < seconds:
        yield ("Batch", "Group"), f"a group of {group.duration_in_sec} s is shorter than its windows of {seconds:g} s"


def _variable_warnings(rule: Rule) -> Iterator[tuple[tuple[str | int, ...], str]]:
    dest = rule.spec.dest
    groups = rule.matcher.group_count
    params = [parameter.name for parameter in dest.parameters]
    known = names(Context.DESTINATION) | set(params)
    if rule.spec.batch is None or rule.spec.batch.group is None:
        known -= {"GroupID"}
    texts: list[tuple[tuple[str | int, ...], str]] = [(("Table",), dest.table), (("Partition",), dest.partition or "")]
    if split := dest.schema_options.split:
        texts += [
            (("Schema", "Split", "Mapping", index, "Then"), mapping.then) for index, mapping in enumerate(split.mapping)
        ]
    for path, text in texts:
        for variable in unknown_variables(text, known | _prefixed(text), groups=groups):
            yield ("Dest", *path), f"{variable} is no variable known here; it would be left as it is"
    places = {"CorruptedFileURL": rule.spec.corrupted_file_url, "InvalidSchemaURL": rule.spec.invalid_schema_url}
    for key, url in places.items():
        for variable in unknown_variables(url or "", names(Context.ACTION) | set(params)):
            yield (key,), f"{variable} is no variable known here; bad files could not be put away"
    used = set(unknown_variables(plain(rule.spec), frozenset()))
    for index, parameter in enumerate(dest.parameters):
        before = names(Context.DESTINATION) | set(params[:index])
        inside = [text for text, _ in references_of(parse_expression(parameter.expression))]
        for variable in unknown_variables(inside, before, groups=groups):
            yield ("Dest", "Parameters", index, "Expression"), f"{variable} is no variable known here"
        if f"${parameter.name}" not in used:
            yield ("Dest", "Parameters", index), f"parameter {parameter.name} is never used"


def _prefixed(text: str) -> frozenset[str]:
    """Names that bqtail reads as `$Date` or `$Hour` followed by text."""
    found = (variable.removeprefix("$") for variable in unknown_variables(text, frozenset()))
    return frozenset(name for name in found if name.startswith(("Date", "Hour")))


def _action_warnings(rule: Rule) -> Iterator[tuple[tuple[str | int, ...], str]]:
    spec = rule.spec
    lists = {"OnSuccess": spec.on_success, "OnFailure": spec.on_failure, "OnBlocked": spec.on_blocked}
    for key, actions in lists.items():
        yield from _list_warnings(actions, (key,), rule, failed=key != "OnSuccess")


def _list_warnings(
    actions: tuple[Action, ...], path: tuple[str | int, ...], rule: Rule, *, failed: bool, chained: bool = False
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    params = {parameter.name for parameter in rule.spec.dest.parameters}
    for index, action in enumerate(actions):
        here = (*path, index)
        request = action.body
        contexts = (
            [Context.ACTION, Context.GROUP] + [Context.FAILURE] * failed + [Context.CHAINED] * bool(chained or index)
        )
        if isinstance(request, CopyRequest) and request.multi_partition:
            contexts.append(Context.PARTITION_COPY)
        known = names(*contexts) | params | (_JOB_FIELDS if chained or index else frozenset())
        for variable in unknown_variables(plain(request), known):
            yield (*here, "Request"), f"{variable} is no variable known here; it would be left as it is"
        yield from ((((*here, "Request"), message)) for message in _request_warnings(request))
        yield from (((*here, "Request", *key), message) for key, message in request_types(rule, request))
        yield from _list_warnings(action.on_success, (*here, "OnSuccess"), rule, failed=failed, chained=True)
        yield from _list_warnings(action.on_failure, (*here, "OnFailure"), rule, failed=True, chained=True)


_JOB_FIELDS = frozenset({"Id", "Status", "Statistics", "JobReference", "Configuration"})


def _request_warnings(request: object) -> Iterator[str]:
    writes = isinstance(request, CopyRequest) or (isinstance(request, QueryRequest) and request.dest)
    if writes and isinstance(request, (CopyRequest, QueryRequest)) and "append" not in request.model_fields_set:
        yield f"Append is not given, so {request.dest} is replaced; write Append: true to add, or false to say so"
    if isinstance(request, NotifyRequest) and request.token:
        yield "a Token in a rule file is readable by everyone who reads rules; use Credentials or the settings"
    if isinstance(request, NotifyRequest) and request.credentials and request.credentials.key and not request.token:
        yield (
            "Credentials with a Key are not read here: the daemon's own token is used; mount it, and set "
            "actions.slack_token_file"
        )
    if isinstance(request, CallRequest) and request.url.startswith("http://") and request.auth:
        yield "Auth sends an identity token, and http:// sends it unencrypted; use https://"


def _called(rules: Sequence[ParsedRule]) -> list[ParsedRule]:
    """The rules by the names that they have beside each other."""
    names = told_apart(parsed.rule for parsed in rules)
    return [replace(parsed, rule=rule) for parsed, rule in zip(rules, names, strict=True)]


def _sharing(rules: Sequence[ParsedRule]) -> Iterator[tuple[ParsedRule, Problem]]:
    """Rules that other rules keep from being called as they would be, and those whose workflow others claim."""
    having: dict[str, list[ParsedRule]] = defaultdict(list)
    for parsed in rules:
        for name in dict.fromkeys(parsed.rule.names):
            having[name].append(parsed)
    claimed = Counter(parsed.rule.names[0] for parsed in rules)
    for parsed in rules:
        rule, workflow, wanted = parsed.rule, parsed.rule.spec.info.workflow, parsed.rule.names[0]
        if rule.name == wanted and not (workflow and claimed[wanted] > 1):
            continue
        others = [other for other in having[wanted][: _NAMED + 1] if other is not parsed][:_NAMED]
        where = ", ".join(str(other.document.place) for other in others)
        remedy = "each has a Workflow of its own" if workflow else "one of the files has another name"
        place, path, _ = locate(parsed.document, ("Info", "Workflow") if workflow else (), Place(rule.url, 1, 1))
        yield (
            parsed,
            Problem.at(
                place,
                dotted(path),
                f"{wanted} is also the name of {where}, and rules are told apart by their names: this one is called"
                f" {rule.name} until {remedy}",
                Severity.WARNING,
            ),
        )


def _overlapping(rules: Sequence[ParsedRule]) -> Iterator[tuple[ParsedRule, Problem]]:
    """Pairs of enabled rules without patterns where one's files are surely also the other's."""
    open_rules = [
        parsed
        for parsed in rules
        if not parsed.rule.spec.disabled and not parsed.rule.matcher.pattern and not parsed.rule.spec.when.exclusion
    ]
    by_suffix: dict[str, list[ParsedRule]] = defaultdict(list)
    for parsed in open_rules:
        by_suffix[parsed.rule.matcher.suffix].append(parsed)
    for parsed in open_rules:
        matcher = parsed.rule.matcher
        # A longer suffix of the same files: `.json.gz` under `.gz`.
        suffixes = {matcher.suffix[start:] for start in range(len(matcher.suffix) + 1)}
        for suffix in sorted(suffixes & by_suffix.keys()):
            for other in by_suffix[suffix]:
                if other is not parsed and _covers(other.rule, parsed.rule):
                    yield parsed, _overlap(parsed, other)


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Whether every file of `narrow` is one of `wide`; of two equal rules only one covers the other."""
    one, two = wide.matcher, narrow.matcher
    if (one.prefix, one.suffix) == (two.prefix, two.suffix):
        return (wide.url, wide.index) < (narrow.url, narrow.index)
    return two.prefix.startswith(one.prefix) and two.suffix.endswith(one.suffix)


def _overlap(parsed: ParsedRule, other: ParsedRule) -> Problem:
    place, path, _ = locate(parsed.document, ("When",), Place(parsed.rule.url, 1, 1))
    return Problem.at(
        place,
        dotted(path),
        f"files of this rule also match {other.rule.name} ({other.document.place}), and a file two rules match is"
        " refused; narrow one of them with Prefix, Filter or Exclusion",
        Severity.WARNING,
    )
