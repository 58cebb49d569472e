"""What translated SQL calls inside DuckDB: Python functions for what DuckDB cannot say exactly, and SQL macros."""
