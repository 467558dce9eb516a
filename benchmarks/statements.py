"""Statements as a reader tells them apart: without the values that were bound, and without long lists of columns."""

from __future__ import annotations

import re

LENGTH = 90
_VALUE = re.compile(r"[xX]?'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b|\bNULL\b")
_WRITES = re.compile(r"\b(INSERT INTO|(?<!FOR )(?<!DO )UPDATE|DELETE FROM) (\w+)")


def without_values(sql: str) -> str:
    return _VALUE.sub("?", sql)


def named(sql: str) -> str:
    """One line: of a question where it looks, of several writes in one which tables they are about."""
    sql = " ".join(sql.split())
    if sql.startswith("WITH ") and (writes := _WRITES.findall(sql)):
        verbs = dict.fromkeys(verb for verb, _ in writes)
        return "; ".join(f"{verb} {', '.join(_tables(verb, writes))}" for verb in verbs)
    if len(sql) > LENGTH and sql.startswith("SELECT ") and " FROM " in sql:
        return f"SELECT … {sql[sql.index(' FROM ') + 1 :]}"[:LENGTH]
    return sql[:LENGTH]


def _tables(verb: str, writes: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(table for other, table in writes if other == verb))
