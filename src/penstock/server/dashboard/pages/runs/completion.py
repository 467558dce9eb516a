"""Completes a query of runs: given what was typed so far, the words that may come next.

The grammar has four places, told apart by the words before the cursor: a field, an operator, a value, and what joins
tests. What is half typed filters the words of its place. A suggestion is the whole text as it would become, so that a
browser needs no grammar of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

FIELDS: Final = (
    "Status",
    "WorkflowType",
    "StartTime",
    "TaskQueue",
    "WorkflowId",
    "BusinessKey",
    "CloseTime",
    "BuildId",
    "RoutingKey",
    "ParentWorkflowId",
    "ScheduledById",
    "RunId",
)
STATUSES: Final = (
    "open",
    "waiting",
    "pending",
    "failed",
    "completed",
    "cancelled",
    "terminated",
    "timed_out",
    "continued",
)
TIMES: Final = ("1h ago", "24h ago", "7d ago", "now")
SHOWN: Final = 8
_COMPARED = ("=", "!=", "IN (", "STARTS_WITH", "IS NULL", "IS NOT NULL")
_ORDERED = (">", "<", ">=", "<=", "BETWEEN")
_JOINS = ("AND", "OR")
_WORD = re.compile(r"'(?:[^']|'')*'?|\"(?:[^\"]|\"\")*\"?|`[^`]*`?|[<>!=]=?|[(),]|[^\s<>!=(),'\"`]+")
_TIME_FIELDS = frozenset({"StartTime", "CloseTime"})
_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">=", "IN", "STARTS_WITH", "BETWEEN", "IS"})


class Suggestion(Struct, frozen=True):
    """One word that may come next: how it is shown, and the whole text with it."""

    word: str
    text: str


def completions(
    text: str, attributes: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> list[Suggestion]:
    """The suggestions for a query that ends where the cursor is.

    Args:
        text: What was typed.
        attributes: The registered search attributes, with their types.
        values: Values that are known of fields, such as types of workflows.
    """
    words = _WORD.findall(text)
    typed = "" if not words or text[-1:].isspace() or words[-1] in ("(", ",") else words.pop()
    if _is_plain_text(typed, words, attributes):
        return []
    place, field = _place(words)
    offered = _offered(place, field, attributes, values)
    before = text[: len(text) - len(typed)]
    wanted = typed.strip("'\"`").lower()
    fitting = [word for word in offered if word.strip("'").lower().startswith(wanted) and word != typed]
    if not fitting and place in ("value", "field"):
        # The word is whole: offer what may follow it.
        following = _offered(*_place([*words, typed]), attributes, values) if typed else []
        return [Suggestion(word, f"{text.rstrip()} {word} ") for word in following[:SHOWN]]
    return [Suggestion(word, f"{before}{word} ") for word in fitting[:SHOWN]]


def _is_plain_text(typed: str, words: Sequence[str], attributes: Mapping[str, str]) -> bool:
    """Whether two words begin no query: such text is searched in ids."""
    if len(words) != 1 or words[0] in FIELDS or words[0] in attributes:
        return False
    begins_query = words[0].startswith(("(", "`")) or words[0].upper() == "NOT"
    return not begins_query and typed.upper() not in _OPERATORS and not typed.startswith(tuple("<>=!"))


def _place(words: Sequence[str]) -> tuple[str, str]:
    """Where the next word stands, and the field of the test that it is part of."""
    place, field = "field", ""
    for word in words:
        upper = word.upper()
        if upper in ("AND", "OR") and place != "value":
            place = "field"
        elif place == "field":
            if upper not in ("NOT", "("):
                place, field = "operator", word.strip("`")
        elif place == "operator":
            if upper in _OPERATORS:
                place = "null" if upper == "IS" else "value"
        elif place in ("value", "null"):
            place = "join" if word not in ("(", "NOT") else place
        elif word in (",", "("):
            place = "value"
    return place, field


def _offered(
    place: str, field: str, attributes: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> list[str]:
    match place:
        case "field":
            return [*FIELDS, *attributes, "NOT"]
        case "operator":
            ordered = field in _TIME_FIELDS or attributes.get(field) in ("int", "double", "datetime")
            return [*_ORDERED, "="] if ordered else [*_COMPARED]
        case "value":
            return _values(field, attributes, values)
        case "null":
            return ["NULL", "NOT NULL"]
        case _:
            return [*_JOINS]


def _values(field: str, attributes: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> list[str]:
    if field == "Status":
        return [f"'{each}'" for each in STATUSES]
    if field in _TIME_FIELDS or attributes.get(field) == "datetime":
        return [f"'{each}'" for each in TIMES]
    if attributes.get(field) == "bool":
        return ["true", "false"]
    return [quoted(each) for each in values.get(field, ())]


def quoted(text: str) -> str:
    """A text as a query writes it."""
    return "'" + text.replace("'", "''") + "'"
