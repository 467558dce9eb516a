"""Search attributes: types, reserved names, and validation of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.core.history.routing_keys import ROUTING_KEY
from penstock.core.schedules.record import SCHEDULED_BY_ID, SCHEDULED_START_TIME
from penstock.core.timestamps import instant
from penstock.core.visibility.fields import SYSTEM
from penstock.core.visibility.syntax import WORDS

Types = Mapping[str, str]
"""The registered search attributes of a namespace, each with its type."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_instant(value: Any) -> bool:
    return isinstance(value, str) and instant(value) is not None


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = MappingProxyType(
    {
        "keyword": (_is_text, "must be a text"),
        "text": (_is_text, "must be a text"),
        "int": (_is_int, "must be an integer"),
        "double": (_is_number, "must be a number"),
        "bool": (_is_truth, "must be true or false"),
        "datetime": (_is_instant, "must be an ISO-8601 time, such as 2026-01-31T12:00:00Z"),
        "keyword_list": (_is_list_of_texts, "must be a list of texts"),
    }
)
"""For each type: a predicate, and the message for a value that does not fit."""


_OF_THE_SERVER: Final = {
    name: SYSTEM[name].type for name in (ROUTING_KEY, SCHEDULED_BY_ID, SCHEDULED_START_TIME)
}
"""What the server itself records, and code may hand on to the runs that it starts."""
_RESERVED_PREFIX: Final = "wf_"


def check(values: Mapping[str, Any], types: Types) -> dict[str, list[str]]:
    """Problems with values, by name. Null removes an attribute, whether it is registered or not."""
    problems: dict[str, list[str]] = {}
    for name, value in values.items():
        type_ = _OF_THE_SERVER.get(name) or types.get(name)
        if value is None:
            continue
        if type_ is None:
            problems[name] = [
                "is not a registered search attribute; register it first, for example with "
                f"`penstock search-attribute create {name} --type keyword`"
            ]
        elif not TYPES[type_][0](value):
            problems[name] = [f"{TYPES[type_][1]}: the search attribute is registered as {type_}"]
    return problems


def is_reserved(name: str) -> bool:
    """Whether a name has another meaning in queries, or in the contract's own schema (`wf_id`)."""
    lower = name.lower()
    return name in SYSTEM or lower == "memo" or lower.startswith(_RESERVED_PREFIX) or name.upper() in WORDS
