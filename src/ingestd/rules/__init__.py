"""The rule engine: rule files in, decisions about files out.

`loading.RuleLoader` reads and re-reads rules into an immutable `RuleBook`; its `index` says which rule takes a file
(`matching`), `destination` where its rows go, `expansion` and `sql` fill variables in, `lint` finds what will hurt.
"""
