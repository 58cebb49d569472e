"""Expressions and values on which Spark and the local BigQuery have to agree."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ingestd.model.schema import Field

SCHEMA = tuple(
    map(
        Field.from_rest,
        [
            {"name": "k", "type": "INTEGER"},
            {"name": "i", "type": "INTEGER"},
            {"name": "j", "type": "INTEGER"},
            {"name": "f", "type": "FLOAT"},
            {"name": "g", "type": "FLOAT"},
            {"name": "n", "type": "NUMERIC"},
            {"name": "m", "type": "NUMERIC"},
            {"name": "b", "type": "BOOLEAN"},
            {"name": "s", "type": "STRING"},
            {"name": "u", "type": "STRING"},
            {"name": "num", "type": "STRING"},
            {"name": "y", "type": "BYTES"},
            {"name": "d", "type": "DATE"},
            {"name": "e", "type": "DATE"},
            {"name": "dt", "type": "DATETIME"},
            {"name": "ts", "type": "TIMESTAMP"},
            {"name": "us", "type": "TIMESTAMP"},
            {"name": "a", "type": "INTEGER", "mode": "REPEATED"},
            {"name": "w", "type": "STRING", "mode": "REPEATED"},
            {
                "name": "st",
                "type": "RECORD",
                "fields": [{"name": "x", "type": "INTEGER"}, {"name": "y", "type": "STRING"}],
            },
            {"name": "js", "type": "STRING"},
            {"name": "day", "type": "STRING"},
        ],
    )
)


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def _civil(*parts: int) -> datetime:
    return _at(*parts).replace(tzinfo=None)


_NAMES = [field.name for field in SCHEMA]
_ROWS: list[list[Any]] = [
    [1, 7, 2, 2.5, 0.5, "1.5", "3", True, "Hello, World", "o", " 42 ", b"abc", date(2024, 2, 29), date(2023, 12, 31),
     _civil(2024, 2, 29, 13, 5, 9, 123456), _at(2024, 2, 29, 23, 59, 59, 999999), _at(2024, 1, 1), [3, 1, 2],
     ["b", "a"], (1, "p"), '{"a": 1, "b": {"c": "x", "d": [1, 2]}, "t": "{no}", "z": null, "q": true}', "2024-2-9"],
    [2, -7, 3, -2.5, 0.25, "-0.000000001", "0.000000003", False, "naïve café 日本語", "é", "-3.75", b"\xff\x00",
     date(1969, 7, 20), date(1970, 1, 1), _civil(1969, 12, 31, 23, 59, 59), _at(1969, 12, 31, 23, 59, 59,
     500000), _at(1970, 1, 1), [],
     [], (None, "q"), '{"a": "1", "b": [{"c": 1.5}], "t": "é\\n"}', "1999-12-31"],
    [3, 9007199254740993, -5, 1e15, 3.0, "12345678901234567.123456789", "-7.25", None, "", "", "1e3", b"",
     date(2000, 1, 1), date(1999, 12, 31), _civil(2000, 1, 1), _at(2000, 1, 1), _at(1999, 12, 31, 23, 0),
     [0], ["x,y", ""], None,
     "[1, 2, 3]", "2000-01-01"],
    [4, 0, 1, 0.0, -1.0, "0", "2", True, "a.b*c$1", ".", "abc", b"\x00\x01", date(2021, 1, 3), date(2020, 12, 28),
     _civil(2021, 1, 3, 0, 0, 0, 1), _at(2021, 1, 3, 12, 30), _at(2020, 12, 27, 1, 2, 3), [-1, -1, 4],
     ["A", "b", "A"], (9, ""), "not json", "2021-13-40"],
    [5, None, 4, None, 2.0, None, "1", False, None, "x", None, None, None, date(2024, 5, 5), None, None,
     _at(2024, 5, 5), [5, 6], ["n"], (2, None), None, None],
    [6, 12, None, 1234567.891, 1e-7, "99.999999999", None, True, "  tab\t and space \n", "a", "0.1", b"x" * 20,
     date(2024, 12, 30), None, _civil(2024, 12, 30, 12, 0, 0, 500000), _at(2024, 12, 30, 6), None, [7], ["z"],
     (3, "r"), '{"a": {"a": {"a": 5}}}', "2024-12-30"],
]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        name: Decimal(value) if name in ("n", "m") and value is not None else value
        for name, value in zip(_NAMES, row, strict=True)
    }
    for row in _ROWS
]

EXPRESSIONS = r"""
i + j
i - j * 2
i * 2 + 1
-i
i / 2
j / 4
i / 2.0
f + g
f * g
f / 4
f - i
n + m
n - m
n * m
n * 2
IF(k = 3, m, n) / 7
n + i
n * 0.5
IF(k = 3, m, n) / 3 + m
DIV(i, 3)
MOD(i, 3)
MOD(n, 2)
i & 6
i | 8
i ^ 5
~i
i << 2
i >> 1
-5 >> 60
i = 7
i != 7
i <> j
f < g
f >= 2
n <= 1.5
s = 'Hello, World'
s < u
d > e
d = '2024-02-29'
ts > us
ts >= '2000-01-01 00:00:00+00'
ts < TIMESTAMP '2024-01-01 00:00:00 America/New_York'
dt < DATETIME '2020-01-01T00:00:00'
b AND i > 0
b OR i > 0
NOT b
b IS TRUE
b IS NOT TRUE
b IS NULL
i IS NOT NULL
i IS DISTINCT FROM j
i IS NOT DISTINCT FROM NULL
i BETWEEN -7 AND 7
i NOT BETWEEN j AND 10
s BETWEEN 'a' AND 'z'
i IN (7, 12, NULL)
i NOT IN (7, 12)
s IN ('', 'x')
j IN UNNEST(a)
j IN UNNEST([1, 2, 3])
IF(k < 3, CAST('nan' AS FLOAT64), f) = 1000
IF(k < 3, CAST('nan' AS FLOAT64), f) != 1000
IF(k < 3, CAST('nan' AS FLOAT64), f) < 1000
IF(k < 3, CAST('nan' AS FLOAT64), f) <= 1000
IF(k < 3, CAST('nan' AS FLOAT64), f) > 1000
IF(k < 3, CAST('nan' AS FLOAT64), f) >= 1000
1000 < IF(k < 3, CAST('nan' AS FLOAT64), f)
IF(k < 3, CAST('nan' AS FLOAT64), f) > g
IF(k < 3, CAST('nan' AS FLOAT64), f) = IF(k < 3, CAST('nan' AS FLOAT64), f)
IF(k < 3, CAST('nan' AS FLOAT64), f) != IF(k < 3, CAST('nan' AS FLOAT64), f)
IF(k < 3, CAST('nan' AS FLOAT64), f) = CAST(NULL AS FLOAT64)
IF(k < 3, CAST('nan' AS FLOAT64), f) > f
IF(k < 3, CAST('nan' AS FLOAT64), f) BETWEEN -5 AND 5
IF(k < 3, CAST('nan' AS FLOAT64), f) NOT BETWEEN -5 AND 5
g BETWEEN 0.1 AND IF(k < 3, CAST('nan' AS FLOAT64), f)
IF(k < 3, CAST('nan' AS FLOAT64), f) BETWEEN 5 AND NULL
IF(k < 3, CAST('nan' AS FLOAT64), f) IN (0.0, 1e15)
IF(k < 3, CAST('nan' AS FLOAT64), f) IN (0, NULL)
IF(k < 3, CAST('nan' AS FLOAT64), f) NOT IN (0, 2.5)
IF(k < 3, CAST('nan' AS FLOAT64), f) IN (IF(k < 3, CAST('nan' AS FLOAT64), f), g)
0 IN (IF(k < 3, CAST('nan' AS FLOAT64), f), i)
IF(k < 3, CAST('nan' AS FLOAT64), f) IN UNNEST([IF(k < 3, CAST('nan' AS FLOAT64), f), 0.0])
IF(k < 3, CAST('nan' AS FLOAT64), f) IN UNNEST([0.0, NULL])
CASE IF(k < 3, CAST('nan' AS FLOAT64), f) WHEN IF(k < 3, CAST('nan' AS FLOAT64), f) THEN 1 ELSE 2 END
NULLIF(IF(k < 3, CAST('nan' AS FLOAT64), f), IF(k < 3, CAST('nan' AS FLOAT64), f))
NULLIF(IF(k < 3, CAST('nan' AS FLOAT64), f), 0)
GREATEST(IF(k < 3, CAST('nan' AS FLOAT64), f), 1)
LEAST(IF(k < 3, CAST('nan' AS FLOAT64), f), 1)
IF(IF(k < 3, CAST('nan' AS FLOAT64), f) > 5, 'big', 'small')
IF(k < 3, CAST('nan' AS FLOAT64), f) IS DISTINCT FROM IF(k < 3, CAST('nan' AS FLOAT64), f)
ARRAY_INCLUDES([IF(k < 3, CAST('nan' AS FLOAT64), f)], IF(k < 3, CAST('nan' AS FLOAT64), f))
RANGE_BUCKET(IF(k < 3, CAST('nan' AS FLOAT64), f), [0.0, 10.0])
ARRAY_MIN([IF(k < 3, CAST('nan' AS FLOAT64), f), g])
ARRAY_MAX([IF(k < 3, CAST('nan' AS FLOAT64), f), g])
s LIKE '%o%'
s LIKE 'a._*c$1'
s NOT LIKE '%\\%%'
s LIKE ANY ('Hello%', '%c')
CASE WHEN i > 5 THEN 'big' WHEN i > 0 THEN 'small' ELSE 'none' END
CASE i WHEN 7 THEN 1.5 WHEN 0 THEN 2 END
CASE WHEN b THEN i ELSE f END
IF(b, i, n)
IF(i > 0, d, e)
IFNULL(i, -1)
COALESCE(NULL, i, j)
COALESCE(f, i, 0)
NULLIF(i, 7)
GREATEST(i, j, 3)
LEAST(f, g)
GREATEST(d, e)
GREATEST(s, u)
CAST(i AS STRING)
CAST(i AS FLOAT64)
CAST(i AS NUMERIC)
CAST(i AS BOOL)
CAST(f AS INT64)
CAST(f AS STRING)
CAST(f / 3 AS INT64)
CAST(0.5 AS INT64)
CAST(-0.5 AS INT64)
CAST(g AS STRING)
CAST(1e20 AS STRING)
CAST(1.5e-7 AS STRING)
CAST(123456789012345.0 AS STRING)
CAST(f AS NUMERIC)
CAST(n AS STRING)
CAST(n AS INT64)
CAST(n AS FLOAT64)
CAST(b AS STRING)
CAST(b AS INT64)
CAST(s AS BYTES)
CAST(d AS STRING)
CAST(d AS DATETIME)
CAST(d AS TIMESTAMP)
CAST(dt AS STRING)
CAST(dt AS DATE)
CAST(dt AS TIMESTAMP)
CAST(ts AS STRING)
CAST(ts AS DATE)
CAST(ts AS DATETIME)
CAST('2024-1-2' AS DATE)
CAST('2024-01-02 03:04:05.678' AS DATETIME)
CAST('2024-01-02T03:04:05+02:00' AS TIMESTAMP)
CAST(a AS ARRAY<FLOAT64>)
SAFE_CAST(num AS INT64)
SAFE_CAST(num AS FLOAT64)
SAFE_CAST(num AS NUMERIC)
SAFE_CAST(num AS BOOL)
SAFE_CAST(day AS DATE)
SAFE_CAST(day AS TIMESTAMP)
SAFE_CAST(day AS DATETIME)
SAFE_CAST('1d' AS FLOAT64)
SAFE_CAST('nan' AS FLOAT64)
SAFE_CAST('2024' AS DATE)
SAFE_CAST('2024-01-01 xx' AS TIMESTAMP)
SAFE_CAST('TRUE' AS BOOL)
SAFE_CAST('yes' AS BOOL)
SAFE_CAST(y AS STRING)
SAFE_CAST(f AS INT64)
ABS(i)
ABS(f)
ABS(n)
SIGN(f)
SIGN(n)
CEIL(f)
FLOOR(f)
CEIL(n)
FLOOR(n)
ROUND(f)
ROUND(f, 1)
ROUND(2.5)
ROUND(-2.5)
ROUND(1.005, 2)
ROUND(1234.567, -2)
ROUND(n)
ROUND(n, 2)
TRUNC(f)
TRUNC(f, 1)
TRUNC(n, 3)
SQRT(ABS(f))
POW(g, 2)
EXP(g)
LN(ABS(g))
LOG(ABS(g), 10)
LOG10(ABS(g))
SIN(f)
ATAN2(f, g)
IS_NAN(f)
IS_INF(f)
IEEE_DIVIDE(f, 0)
SAFE_DIVIDE(i, 0)
SAFE_DIVIDE(i, j)
SAFE_DIVIDE(n, 0)
SAFE_ADD(i, 9223372036854775807)
SAFE_MULTIPLY(i, 9223372036854775807)
SAFE_SUBTRACT(i, j)
SAFE_NEGATE(i)
SAFE.DIV(i, 0)
SAFE.MOD(i, 0)
SAFE.SQRT(f)
SAFE.LN(f)
BIT_COUNT(i)
UPPER(s)
LOWER(s)
LENGTH(s)
CHAR_LENGTH(s)
BYTE_LENGTH(s)
LENGTH(y)
REVERSE(s)
CONCAT(s, '-', u)
CONCAT(s, i)
s || u
y || b'z'
SUBSTR(s, 2)
SUBSTR(s, 2, 3)
SUBSTR(s, -3)
SUBSTR(s, -3, 2)
SUBSTR(s, 0, 2)
SUBSTR(s, -100, 2)
SUBSTR(s, 100)
SUBSTR(s, j)
SUBSTR(y, 2)
LEFT(s, 3)
RIGHT(s, 3)
LEFT(s, 0)
TRIM(s)
LTRIM(s)
RTRIM(s)
TRIM(s, 'Hd')
LTRIM(s, 'aH')
LPAD(s, 5)
LPAD(s, 15, 'xy')
RPAD(s, 15, 'é')
REPEAT(u, 3)
REPLACE(s, 'l', 'L')
REPLACE(s, '', 'x')
STARTS_WITH(s, 'He')
ENDS_WITH(s, u)
STRPOS(s, 'o')
STRPOS(s, u)
INSTR(s, u)
SPLIT(s)
SPLIT(s, ' ')
SPLIT(s, '.')
SPLIT(s, ', ')
SPLIT(s)[OFFSET(0)]
SPLIT(s, '.')[SAFE_OFFSET(1)]
REGEXP_CONTAINS(s, r'^[A-Z]\w+')
REGEXP_CONTAINS(s, r'd$')
REGEXP_CONTAINS(s, r'(?i)WORLD')
REGEXP_CONTAINS(s, r'\s')
REGEXP_EXTRACT(s, r'(\w+)$')
REGEXP_EXTRACT(s, r'[aeiou]+')
REGEXP_EXTRACT(s, r'l(o?)')
REGEXP_EXTRACT_ALL(s, r'[a-z]')
REGEXP_EXTRACT_ALL(s, r'(.)o')
REGEXP_REPLACE(s, r'[aeiou]', '_')
REGEXP_REPLACE(s, r'(\w)(\w)', r'\2\1')
REGEXP_REPLACE(s, r'\$', '$0')
REGEXP_INSTR(s, r'o')
TO_HEX(y)
FROM_HEX(TO_HEX(y))
TO_BASE64(y)
FROM_BASE64(TO_BASE64(y))
TO_HEX(MD5(s))
MD5(y)
TO_HEX(SHA1(s))
TO_HEX(SHA256(s))
TO_HEX(SHA512(y))
FARM_FINGERPRINT(s)
FARM_FINGERPRINT(y)
MOD(ABS(FARM_FINGERPRINT(CONCAT(s, u, js))), 10)
FARM_FINGERPRINT(REPEAT(CONCAT(s, 'ab'), 9)) IS NULL
ASCII(SUBSTR(num, 1, 1))
UNICODE(u)
CHR(233)
TO_CODE_POINTS(CONCAT(u, 'é'))
CODE_POINTS_TO_STRING([72, 233])
TRANSLATE(s, 'lo', '01')
EDIT_DISTANCE(SUBSTR(num, 1, 4), '4.2')
SAFE_CONVERT_BYTES_TO_STRING(b'abc')
FORMAT('%d items', i)
FORMAT('%05d|%-5d|%+d', j, j, j)
FORMAT('%s-%s', s, u)
FORMAT('%.2f', ABS(n))
FORMAT('%8.3f|', m)
FORMAT('%t %t', d, i)
FORMAT('100%%')
FORMAT('%x', 255)
DATE(ts)
DATE(dt)
DATE(2024, 2, 29)
DATE(ts, 'America/New_York')
DATETIME(ts)
DATETIME(ts, 'Asia/Kolkata')
DATETIME(2024, 1, 2, 3, 4, 5)
TIMESTAMP(d)
TIMESTAMP(dt)
TIMESTAMP(dt, 'Europe/Berlin')
TIMESTAMP('2024-01-02 03:04:05')
DATE_ADD(d, INTERVAL 1 DAY)
DATE_ADD(d, INTERVAL -2 WEEK)
DATE_ADD(d, INTERVAL 1 MONTH)
DATE_ADD(d, INTERVAL 1 QUARTER)
DATE_SUB(d, INTERVAL 1 YEAR)
DATE_ADD(d, INTERVAL j DAY)
d + 1
d - 7
DATETIME_ADD(dt, INTERVAL 90 MINUTE)
DATETIME_ADD(dt, INTERVAL 1 MONTH)
DATETIME_SUB(dt, INTERVAL 1 DAY)
DATETIME_ADD(dt, INTERVAL 3 MICROSECOND)
TIMESTAMP_ADD(ts, INTERVAL 1 DAY)
TIMESTAMP_ADD(ts, INTERVAL 10 SECOND)
TIMESTAMP_SUB(ts, INTERVAL 5 HOUR)
TIMESTAMP_ADD(ts, INTERVAL j MILLISECOND)
DATE_DIFF(d, e, DAY)
DATE_DIFF(d, e, WEEK)
DATE_DIFF(d, e, WEEK(MONDAY))
DATE_DIFF(d, e, ISOWEEK)
DATE_DIFF(d, e, MONTH)
DATE_DIFF(d, e, QUARTER)
DATE_DIFF(d, e, YEAR)
DATE_DIFF(d, e, ISOYEAR)
DATETIME_DIFF(dt, DATETIME '2000-01-01 00:00:00', HOUR)
DATETIME_DIFF(dt, DATETIME '2000-01-01 00:00:00', DAY)
DATETIME_DIFF(dt, DATETIME '2000-01-01 00:00:00', SECOND)
TIMESTAMP_DIFF(ts, us, SECOND)
TIMESTAMP_DIFF(ts, us, HOUR)
TIMESTAMP_DIFF(us, ts, DAY)
TIMESTAMP_DIFF(ts, us, MICROSECOND)
DATE_TRUNC(d, MONTH)
DATE_TRUNC(d, WEEK)
DATE_TRUNC(d, WEEK(TUESDAY))
DATE_TRUNC(d, ISOWEEK)
DATE_TRUNC(d, QUARTER)
DATE_TRUNC(d, YEAR)
DATE_TRUNC(d, ISOYEAR)
DATETIME_TRUNC(dt, HOUR)
DATETIME_TRUNC(dt, DAY)
DATETIME_TRUNC(dt, MONTH)
TIMESTAMP_TRUNC(ts, HOUR)
TIMESTAMP_TRUNC(ts, DAY)
TIMESTAMP_TRUNC(ts, WEEK)
TIMESTAMP_TRUNC(ts, DAY, 'America/Los_Angeles')
TIMESTAMP_TRUNC(ts, MILLISECOND)
LAST_DAY(d)
LAST_DAY(d, QUARTER)
LAST_DAY(d, WEEK)
LAST_DAY(d, YEAR)
LAST_DAY(d, ISOYEAR)
EXTRACT(YEAR FROM d)
EXTRACT(MONTH FROM d)
EXTRACT(DAY FROM ts)
EXTRACT(QUARTER FROM d)
EXTRACT(DAYOFWEEK FROM d)
EXTRACT(DAYOFYEAR FROM d)
EXTRACT(WEEK FROM d)
EXTRACT(WEEK(MONDAY) FROM d)
EXTRACT(ISOWEEK FROM d)
EXTRACT(ISOYEAR FROM d)
EXTRACT(HOUR FROM ts)
EXTRACT(HOUR FROM ts AT TIME ZONE 'Asia/Kolkata')
EXTRACT(MINUTE FROM dt)
EXTRACT(SECOND FROM ts)
EXTRACT(MILLISECOND FROM ts)
EXTRACT(MICROSECOND FROM dt)
EXTRACT(DATE FROM ts)
EXTRACT(TIME FROM dt)
TIME(ts)
TIME(1, 2, 3)
EXTRACT(HOUR FROM TIME(ts))
CAST(TIME(dt) AS STRING)
UNIX_SECONDS(ts)
UNIX_MILLIS(ts)
UNIX_MICROS(ts)
UNIX_DATE(d)
TIMESTAMP_SECONDS(j)
TIMESTAMP_MILLIS(j)
TIMESTAMP_MICROS(j)
DATE_FROM_UNIX_DATE(j)
FORMAT_DATE('%Y-%m-%d', d)
FORMAT_DATE('%Y%m%d', d)
FORMAT_DATE('%A, %B %e, %Y', d)
FORMAT_DATE('%j %U %W %V %G %u %w %y %b %a', d)
FORMAT_DATE("Q%Q o'clock", d)
FORMAT_TIMESTAMP('%F %T', ts)
FORMAT_TIMESTAMP('%Y-%m-%dT%H:%M:%E3SZ', ts)
FORMAT_TIMESTAMP('%E*S|%E6S|%s|%p|%I', ts)
FORMAT_TIMESTAMP('%H:%M %Z %z', ts)
FORMAT_TIMESTAMP('%F %R', ts, 'America/New_York')
FORMAT_DATETIME('%d/%m/%Y %k:%l', dt)
PARSE_DATE('%Y-%m-%d', '2024-2-9')
PARSE_DATE('%Y%m%d', '20240209')
PARSE_DATE('%d %b %Y', '9 feb 2024')
PARSE_DATE('%m/%d/%y', '2/9/70')
PARSE_DATETIME('%Y-%m-%d %H:%M:%S', '2024-02-09 1:02:03')
PARSE_TIMESTAMP('%Y-%m-%dT%H:%M:%E*S', '2024-02-09T01:02:03.123456')
PARSE_TIMESTAMP('%F %T', '2024-02-09 01:02:03', 'America/New_York')
PARSE_TIMESTAMP('%F %T%z', '2024-02-09 01:02:03+0530')
PARSE_TIMESTAMP('%I:%M %p', '11:30 pm')
PARSE_TIMESTAMP('%s', '1700000000')
PARSE_TIME('%H:%M', '12:34')
SAFE.PARSE_DATE('%Y-%m-%d', day)
SAFE.PARSE_TIMESTAMP('%F', day)
STRING(ts)
ARRAY_LENGTH(a)
ARRAY_REVERSE(a)
ARRAY_CONCAT(a, [10, 11])
a || [k]
ARRAY_TO_STRING(w, ',')
ARRAY_TO_STRING(w, '-', 'none')
ARRAY_TO_STRING(a, '/')
a[SAFE_OFFSET(0)]
a[SAFE_ORDINAL(2)]
w[SAFE_OFFSET(5)]
ARRAY_SLICE(a, 0, 1)
ARRAY_SLICE(a, -2, -1)
ARRAY_IS_DISTINCT(a)
ARRAY_INCLUDES(a, 1)
ARRAY_FILTER(a, e -> e > 1)
ARRAY_TRANSFORM(a, e -> e * 2)
ARRAY(SELECT x + 1 FROM UNNEST(a) AS x WHERE x > 0)
(SELECT SUM(x) FROM UNNEST(a) AS x)
(SELECT COUNT(*) FROM UNNEST(a) AS x WHERE x > 1)
(SELECT MAX(x) FROM UNNEST(a) AS x)
(SELECT STRING_AGG(x, '+') FROM UNNEST(w) AS x)
EXISTS(SELECT 1 FROM UNNEST(w) AS x WHERE x = 'a')
GENERATE_ARRAY(1, 5, 2)
GENERATE_ARRAY(5, 1)
GENERATE_DATE_ARRAY(DATE '2024-01-30', DATE '2024-02-02')
GENERATE_DATE_ARRAY(DATE '2024-01-15', DATE '2024-05-01', INTERVAL 1 MONTH)
RANGE_BUCKET(i, [0, 5, 10])
st.x
st.y
IFNULL(st.x, 0) + 1
STRUCT(i AS p, s AS q).q
STRUCT(1 AS x, 'z' AS y)
[k, IFNULL(j, 0)]
[STRUCT(i AS x)]
JSON_VALUE(js, '$.a')
JSON_VALUE(js, '$.b.c')
JSON_VALUE(js, '$.b.d[1]')
JSON_VALUE(js, '$.b')
JSON_VALUE(js, '$.t')
JSON_VALUE(js, '$.q')
JSON_VALUE(js, '$.missing')
JSON_VALUE(js, "$['a']")
JSON_EXTRACT_SCALAR(js, '$.a')
JSON_QUERY(js, '$.b')
JSON_QUERY(js, '$.t')
JSON_QUERY(js, '$.b.d')
JSON_VALUE_ARRAY(js, '$.b.d')
JSON_QUERY_ARRAY(js, '$.b.d')
JSON_VALUE(js, '$[1]')
JSON_VALUE('{"a": 0.1234567890123456789}', '$.a')
JSON_VALUE('{"a": 100000000000000000000000.5}', '$.a')
CAST(JSON_VALUE('{"a": 12345678901234567890.123456789}', '$.a') AS NUMERIC)
JSON_VALUE('{"a": 123456789.123456789123456789123456789123456789}', '$.a')
JSON_VALUE('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.a')
JSON_VALUE('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.b[0]')
JSON_VALUE('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.b[1]')
JSON_VALUE('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.b[2]')
JSON_QUERY('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.b')
JSON_QUERY('{"a": 1.10, "b": [-0.0, 1e2, 1E400, 1.50e-3]}', '$.a')
JSON_VALUE_ARRAY('{"b": [0.1234567890123456789, 1.10, 1e2, "1.10", "a 1.10", 7]}', '$.b')
JSON_QUERY_ARRAY('{"b": [0.1234567890123456789, 1.10, 1e2, "1.10", "a 1.10", 7]}', '$.b')
JSON_VALUE('{"n": "x: 1.10, \\"y\\": 2.20", "a": "1.10", "b": 3.30}', '$.n')
JSON_VALUE('{"n": "x: 1.10, \\"y\\": 2.20", "a": "1.10", "b": 3.30}', '$.a')
JSON_VALUE('{"n": "x: 1.10, \\"y\\": 2.20", "a": "1.10", "b": 3.30}', '$.b')
JSON_QUERY('{"o": {"z": "1.10", "n": "x: 1.10, \\"y\\": 2.20\\\\", "b": 3.30, "a": {"c": -4.40}}}', '$.o')
JSON_QUERY('{"o": {"z": "1.10", "n": "x: 1.10, \\"y\\": 2.20\\\\", "b": 3.30, "a": {"c": -4.40}}}', '$.o.z')
JSON_VALUE('{"a": 01.5}', '$.a')
JSON_VALUE('{"a": 1.}', '$.a')
JSON_VALUE(CONCAT('{"t":"', REPEAT('\\\\n1.10 ', 20000), '", "a": [', REPEAT('1.10, ', 20000), '2], "z": 3.30}'), '$.z')
TO_JSON_STRING(i)
TO_JSON_STRING(s)
TO_JSON_STRING(f)
TO_JSON_STRING(n)
TO_JSON_STRING(b)
TO_JSON_STRING(d)
TO_JSON_STRING(ts)
TO_JSON_STRING(a)
TO_JSON_STRING(w)
TO_JSON_STRING(st)
TO_JSON_STRING(STRUCT(i, ts, y))
@number + i
@text || s
d > @day
@numbers[SAFE_OFFSET(1)]
i IN UNNEST(@numbers)
@flag AND b
f * @factor
'it\'s'
"tab\t'quote' ${x} \\ \" é"
r'\d'
b'\x00a'
0x1F
1e3
NULL
DATE '2024-01-01'
TIMESTAMP '2024-01-01 12:00:00.5-08:00'
NUMERIC '1.23'
(i + 1) * (j - 1)
UPPER(CONCAT(LEFT(s, 1), '.', SUBSTR(u, 1, 1)))
IF(REGEXP_CONTAINS(num, r'^\s*-?\d+\s*$'), CAST(num AS INT64), 0)
COALESCE(SAFE_CAST(num AS FLOAT64), f, 0) * 2
SAFE_CAST(SUBSTR(num, 1, 2) AS INT64)
ROUND(SAFE_DIVIDE(i, j), 3)
DATE_DIFF(DATE(ts), d, DAY)
FORMAT_DATE('%Y-%m', DATE_TRUNC(d, MONTH))
ASIN(g / 10)
ACOS(g / 10)
ATAN(g)
ASINH(g)
ACOSH(1 + ABS(g))
ATANH(g / 10)
COS(g)
TAN(g)
SINH(g)
COSH(g)
TANH(g)
CBRT(f)
CEILING(f)
POWER(g, 3)
PI()
SUBSTRING(s, 2, 2)
CHARACTER_LENGTH(s)
OCTET_LENGTH(s)
REGEXP_SUBSTR(s, r'\w+')
NULLIFZERO(i)
ZEROIFNULL(i)
IF(ARRAY_LENGTH(a) > 0, ARRAY_FIRST(a), -1)
IF(ARRAY_LENGTH(a) > 0, ARRAY_LAST(a), -1)
ARRAY_SUM(a)
ARRAY_AVG(a)
ARRAY_MIN(a)
ARRAY_MAX(w)
FORMAT_TIME('%H-%M', TIME(ts))
JSON_EXTRACT(js, '$.b')
JSON_EXTRACT_ARRAY(js, '$.b.d')
JSON_EXTRACT_STRING_ARRAY(js, '$.b.d')
PARSE_JSON('{"b": 1, "a": [true, null, "x"]}')
JSON_VALUE(PARSE_JSON('{"b": {"c": 2}}'), '$.b.c')
JSON_QUERY(PARSE_JSON('{"b": {"c": 2}}'), '$.b')
TO_JSON(i)
TO_JSON(STRUCT(s AS s, f AS f))
CAST(PARSE_JSON('1') IS NULL AS STRING)
INITCAP(s)
INITCAP(s, 'o')
INITCAP('hello-wORLD [x] o_o')
ts + INTERVAL 90 MINUTE
ts - INTERVAL 1 DAY
d + INTERVAL 1 MONTH
dt - INTERVAL 3 HOUR + INTERVAL 1 SECOND
t.i + t.j
`t`.`i`
CONCAT('${', s, '}')
"""

FAILING = [
    "10 / (k - 1)",
    "DIV(10, k - 1)",
    "MOD(10, k - 1)",
    "CAST(1 AS NUMERIC) / (k - 1)",
    "9223372036854775807 + k",
    "-9223372036854775807 - k * 2",
    "9223372036854775807 * (k + 1)",
    "CAST(CONCAT('x', k) AS INT64)",
    "CAST(CONCAT(k, '.5') AS INT64)",
    "CAST(CONCAT(k, 'd') AS FLOAT64)",
    "CAST(CONCAT('yes', k) AS BOOL)",
    "CAST(CONCAT('202', k) AS DATE)",
    "CAST(CONCAT('2024-02-3', k) AS DATE)",
    "CAST(1e30 * k AS INT64)",
    "CAST(CAST('nan' AS FLOAT64) * k AS NUMERIC)",
    "SQRT(0 - k)",
    "LN(1 - k)",
    "PARSE_DATE('%Y-%m-%d', CONCAT('2024-02-3', k))",
    "PARSE_TIMESTAMP('%F', CONCAT('nonsense', k))",
    "SUBSTR('abc', 1, 0 - k)",
    "LEFT('abc', 0 - k)",
    "REPEAT('x', 0 - k)",
    "[1][OFFSET(k)]",
    "ERROR(CONCAT('no', k))",
    "FROM_HEX(CONCAT('zz', k))",
    "DATE(2024, 2, 29 + k)",
]

PARAMETERS: dict[str, Any] = {
    "number": 5,
    "text": 'it\'s ${x} \\ "q"',
    "day": "2000-01-01",
    "numbers": [7, 12],
    "flag": True,
    "factor": 1.5,
}


def expressions() -> list[str]:
    return [line for line in EXPRESSIONS.strip().splitlines() if line.strip()]
