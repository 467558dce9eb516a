"""What a run can be told: the signals and updates that its workers declare, with their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.server.dashboard.view import View

_EXAMPLES: Mapping[str, str] = {
    "integer": "0",
    "number": "0.0",
    "boolean": "true",
    "array": "[]",
    "object": "{}",
}
"""JSON of a type; a text for all others."""


class Ask(Struct, frozen=True):
    """A message that the code of a run listens to."""

    kind: str
    name: str
    parameters: str
    """Names and types, as in a signature."""
    example: str
    """A JSON list of arguments to begin with."""


async def asks_of(view: View, at: Mapping[str, str]) -> list[Ask]:
    """What the registered workers of a run's type declare; nothing for those who see no payloads."""
    page = await view.read("read_history", {"page_size": "1"}, **at)
    started: Mapping[str, Any] = (page["events"][-1]["payload"] if page["events"] else None) or {}
    return [
        _ask(kind, declared)
        for kind in ("signal", "update", "query")
        for declared in started.get(f"declared_{kind}_contracts") or ()
    ]


def _ask(kind: str, declared: Mapping[str, Any]) -> Ask:
    parameters = declared.get("parameters") or []
    return Ask(
        kind,
        str(declared["name"]),
        ", ".join(_signature(each) for each in parameters),
        f"[{', '.join(_example(each) for each in parameters if each.get('required'))}]",
    )


def _signature(parameter: Mapping[str, Any]) -> str:
    optional = "" if parameter.get("required") else "?"
    kind = f": {parameter['type']}" if parameter.get("type") else ""
    return f"{parameter['name']}{optional}{kind}"


def _example(parameter: Mapping[str, Any]) -> str:
    return _EXAMPLES.get(str(parameter.get("type")), '""')
