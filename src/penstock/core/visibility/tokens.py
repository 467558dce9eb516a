"""Tokens of a query: names, values, operators and brackets, with their positions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.core.visibility.query_errors import QueryProblem
from penstock.core.visibility.syntax import WORDS, Literal

QUERY_MAX = 4096
"""Most characters of a query."""


class TokenKind(StrEnum):
    WORD = "word"
    NAME = "name"
    QUOTED_NAME = "name in backquotes"
    VALUE = "value"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class QueryToken:
    sort: TokenKind
    text: str
    """Keywords in capitals; other tokens as written."""
    position: int
    value: Literal = ""

    def __str__(self) -> str:
        return "the end" if self.sort is TokenKind.END else f"{self.text[:40]!r}"


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | `(?P<quoted>[^`]+)`
      | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![A-Za-z0-9_.])
      | (?P<name>[A-Za-z_]\w*(?:\.\w+)*(?:\.`[^`]+`)?)
      | (?P<sign><=|>=|!=|<>|==|[=<>(),])""",
    re.ASCII | re.VERBOSE,
)
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SAME_SIGN = {"<>": "!=", "==": "="}


def tokens(text: str) -> Iterator[QueryToken]:
    """All tokens of a query, and its end."""
    if len(text) > QUERY_MAX:
        raise QueryProblem("The query is too long.", QUERY_MAX + 1, f"at most {QUERY_MAX} characters")
    unseen = _UNSEEN.search(text)
    if unseen:
        raise QueryProblem("A character that cannot be shown.", unseen.start() + 1)
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _strange(text, place)
        if found.lastgroup != "space":
            yield _token(found)
        place = found.end()
    yield QueryToken(TokenKind.END, "", len(text) + 1)


def _token(found: re.Match[str]) -> QueryToken:
    position, raw = found.start() + 1, found[0]
    match found.lastgroup:
        case "text":
            quote = raw[0]
            return QueryToken(TokenKind.VALUE, raw, position, raw[1:-1].replace(quote * 2, quote))
        case "number":
            return QueryToken(TokenKind.VALUE, raw, position, _number(raw, position))
        case "quoted":
            return QueryToken(TokenKind.QUOTED_NAME, found["quoted"], position)
        case "sign":
            return QueryToken(TokenKind.SIGN, _SAME_SIGN.get(raw, raw), position)
    word = raw.upper()
    if word in ("TRUE", "FALSE"):
        return QueryToken(TokenKind.VALUE, raw, position, word == "TRUE")
    if word in WORDS:
        return QueryToken(TokenKind.WORD, word, position)
    return QueryToken(TokenKind.NAME, raw.replace("`", ""), position)


def _number(raw: str, position: int) -> int | float:
    if re.fullmatch(r"[-+]?\d{1,19}", raw):
        return int(raw)
    value = float(raw)
    if not math.isfinite(value):
        raise QueryProblem(f"{raw[:40]} is too large.", position, "a number below 1e308")
    return value


def _strange(text: str, place: int) -> QueryProblem:
    mark = text[place]
    if mark in "'\"`":
        return QueryProblem(f"The quote {mark} is not closed.", place + 1, f"{mark} at the end of the text")
    number = re.match(r"[-+]?[\d.]+[A-Za-z0-9_.]*", text[place:], re.ASCII)
    if number:
        return QueryProblem(
            f"{number[0][:40]!r} is not a number.",
            place + 1,
            "a number, or a text in quotes such as '24h ago'",
        )
    return QueryProblem(f"{mark!r} has no place here.", place + 1)
