"""Columns that rows have on their way through Spark, and no file or table may have: their names begin alike."""

RESERVED = "_ingestd_"
FILE = f"{RESERVED}file"  # INT: the file's place in the request
LINE = f"{RESERVED}line"  # BIGINT: the row's place in its file, rising; any rising number will do
REPORT = f"{RESERVED}report"  # STRING: of a row that is none
ROW = f"{RESERVED}row"  # BIGINT: a kept row's number, its share's in the upper bits
ROW_BITS = 40
BRANCH = f"{RESERVED}branch"  # INT: where the row goes
HOME = -1  # the destination itself
