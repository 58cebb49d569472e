"""What can be wrong with names, types and calls, in GoogleSQL's own words.

The keys are what `Analyzer` finds, `{…}` what it knows of it. An engine whose users write no queries has a table of its
own, in which `{pair}` may stand for `{kinds}`.
"""

GOOGLESQL = {
    "unknown name": "Unrecognized name: {name}{hint}",
    "ambiguous name": "Column name {name} is ambiguous",
    "unknown column": "Name {name} not found inside {alias}",
    "no struct": "Cannot access field {name} on a value with type {kind}",
    "unknown field": "Field name {name} does not exist in {kind}",
    "no array": "Element access using [{mode}] is not supported on values of type {kind}",
    "bad literal": "Invalid {kind} literal",
    "bad cast": 'Could not cast literal "{text}" to type {kind}',
    "unknown function": "Function not found: {written}{hint}",
    "near function": "; Did you mean {lowered}?",
    "over": "Function {name} does not support an OVER clause",
    "modified": "{name} is not an aggregate function: it takes no DISTINCT, ORDER BY, LIMIT or NULLS",
    "star": "Argument * can only be used in COUNT(*)",
    "no window": "Analytic function {name} cannot be called without an OVER clause",
    "never safe": "Function {name} does not support SAFE error mode",
    "number of arguments": "Number of arguments does not match for function {name}: it takes {wanted}",
    "function": "function {name}",
    "no signature": "No matching signature for function {name} for argument types: {kinds}{signatures}",
    "no signature of IF": "IF condition should return type BOOL, but returns {first}",
    "mismatch": "No matching signature for {what} for argument types: {kinds}",
    "no common type": "No matching signature for {what} for argument types: {kinds}",
    "no common type of operator CASE": (
        "No matching signature for operator CASE; all THEN/ELSE arguments must be coercible to a common type but "
        "found: {kinds}"
    ),
    "no common type of array": "Array elements of types {{{distinct}}} do not have a common supertype",
    "untyped": "Expected type {kind}; found {found}",
    "untyped condition": "{what} should return type BOOL, but returns {found}",
    "untyped array element": "Array element type {found} does not coerce to {kind}",
    "untyped struct field": "Could not coerce {found} to {kind}",
    "untyped array position": "Array position in [] must be coercible to INT64 type",
    "untyped LIMIT": "LIMIT expects an integer literal or parameter",
    "untyped OFFSET": "OFFSET expects an integer literal or parameter",
}
