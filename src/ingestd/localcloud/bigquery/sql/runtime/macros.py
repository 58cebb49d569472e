"""SQL macros behind translated GoogleSQL: formulas too long to repeat in every statement.

Days are counted from 0001-01-01, a Monday, so that week arithmetic never meets a negative number.
"""

MACROS = {
    "bq_fraction(us)": """
        CASE WHEN us % 1000000 = 0 THEN ''
             WHEN us % 1000 = 0 THEN printf('.%03d', us % 1000000 // 1000)
             ELSE printf('.%06d', us % 1000000) END""",
    "bq_datetime_to_string(x)": """
        CAST(CAST(x AS DATE) AS VARCHAR) || strftime(x, ' %H:%M:%S') || bq_fraction(datepart('microsecond', x))""",
    "bq_timestamp_to_string(x)": "bq_datetime_to_string(x AT TIME ZONE 'UTC') || '+00'",
    "bq_time_to_string(x)": """
        printf('%02d:%02d:%02d', datepart('hour', x), datepart('minute', x), datepart('microsecond', x) // 1000000)
        || bq_fraction(datepart('microsecond', x))""",
    "bq_interval_us(x)": """
        datepart('hour', x) * 3600000000 + datepart('minute', x) * 60000000 + datepart('microsecond', x)""",
    "bq_interval_months(x)": "datepart('year', x) * 12 + datepart('month', x)",
    "bq_interval_to_string(x)": """
        CASE WHEN bq_interval_months(x) < 0 THEN '-' ELSE '' END
        || CAST(abs(bq_interval_months(x)) // 12 AS VARCHAR) || '-' || CAST(abs(bq_interval_months(x)) % 12 AS VARCHAR)
        || ' ' || CAST(datepart('day', x) AS VARCHAR) || ' ' || CASE WHEN bq_interval_us(x) < 0 THEN '-' ELSE '' END
        || CAST(abs(bq_interval_us(x)) // 3600000000 AS VARCHAR) || ':'
        || CAST(abs(bq_interval_us(x)) // 60000000 % 60 AS VARCHAR) || ':'
        || CAST(abs(bq_interval_us(x)) // 1000000 % 60 AS VARCHAR) || bq_fraction(abs(bq_interval_us(x)))""",
    "bq_string_to_interval(x)": """
        to_months(CAST(bq_interval_parts(x)[1] AS INTEGER)) + to_days(CAST(bq_interval_parts(x)[2] AS INTEGER))
        + to_microseconds(bq_interval_parts(x)[3])""",
    # Not a Python function: DuckDB takes a NaN from Python for NULL.
    "bq_string_to_float64(x)": r"""
        CASE WHEN NOT regexp_full_match(x,
                  '(?i)\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)\s*')
             THEN CAST(bq_error('Bad double value: ' || x) AS DOUBLE)
             ELSE CAST(trim(x) AS DOUBLE) END""",
    "bq_round_float(x, n)": "CASE WHEN isfinite(x) THEN bq_round(x, n) ELSE x END",
    "bq_trunc_float(x, n)": "CASE WHEN isfinite(x) THEN bq_trunc(x, n) ELSE x END",
    "bq_floor_div(a, m)": "((a - ((a % m) + m) % m) // m)",
    "bq_days(d)": "date_diff('day', DATE '0001-01-01', d)",
    # The first day of the week that starts `shift` days before Monday (0 = Monday, 1 = Sunday, …).
    "bq_week_start(d, shift)": "CAST(d - CAST((bq_days(d) + shift) % 7 AS INTEGER) AS DATE)",
    "bq_week_diff(a, b, shift)": "((bq_days(a) + shift) // 7 - (bq_days(b) + shift) // 7)",
    "bq_week_number(d, shift)": "((datepart('doy', d) + 6 - (bq_days(d) + shift) % 7) // 7)",
    # Numbers that are finite do not make one that is not.
    "bq_finite(x, a, b)": """
        CASE WHEN isinf(x) AND isfinite(a) AND isfinite(b) THEN CAST(bq_error('double overflow') AS DOUBLE)
             ELSE x END""",
    "bq_divide(a, b)": """
        CASE WHEN b = 0 THEN CAST(bq_error('division by zero: ' || bq_float64_to_string(a) || ' / '
                                           || bq_float64_to_string(b)) AS DOUBLE)
             ELSE bq_finite(a / b, a, b) END""",
    "bq_int_divide(a, b)": """
        CASE WHEN b = 0 THEN CAST(bq_error('division by zero: ' || CAST(a AS VARCHAR) || ' / '
                                           || CAST(b AS VARCHAR)) AS BIGINT)
             ELSE a // b END""",
    "bq_mod(a, b)": """
        CASE WHEN b = 0 THEN CAST(bq_error('division by zero: MOD(' || CAST(a AS VARCHAR) || ', '
                                           || CAST(b AS VARCHAR) || ')') AS BIGINT)
             ELSE a % b END""",
    "bq_substr(s, pos)": """
        CASE WHEN pos IS NULL THEN NULL WHEN pos > 0 THEN substr(s, least(pos, 2147483647))
             WHEN pos = 0 OR pos <= -length(s) THEN s
             ELSE right(s, -greatest(pos, -2147483647)) END""",
    "bq_top_count(h, n)": """
        list_transform(
            list_reverse_sort(list_transform(map_entries(h), lambda e: struct_pack(c := e.value, k := e.key)))[1:n],
            lambda e: struct_pack("value" := e.k, "count" := CAST(e.c AS BIGINT)))""",
}
