"""GoogleSQL on DuckDB: a parser, a typed compiler and a script interpreter.

The way of a statement: `lexer` → `parser` (an immutable tree, with positions) → `compiler` (names and types resolved as
BigQuery resolves them, DuckDB SQL out) → `engine` (runs it, counts rows). What the compiler does not know is an error,
never a guess: no function or clause reaches DuckDB without having been translated on purpose.
"""
