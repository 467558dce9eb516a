"""The shape of a dispatch file as JSON Schema, for editors and other checkers."""

from __future__ import annotations

from typing import Any

from penstock.dispatch.file.kinds import FieldKind
from penstock.dispatch.file.reader import UNSET
from penstock.dispatch.file.shape import ROOT, Key, ListShape, TableOfShape, TableShape

_UNSET = {"const": UNSET}


def json_schema() -> dict[str, Any]:
    """The schema of a whole file: the root table under any of its three names; other tables are ignored."""
    here = {"$ref": "#/$defs/dispatch"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Dispatch configuration of Penstock",
        "type": "object",
        "properties": {
            "penstock": here,
            "temporal": here,
            "tool": {"type": "object", "properties": {"penstock": here}},
        },
        "$defs": {"dispatch": _table(ROOT)},
    }


def _table(shape: TableShape) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: _key(key) for key in shape.keys},
        "additionalProperties": shape.also_unused.schema() if shape.also_unused is not None else False,
    }
    required = [key.name for key in shape.keys if key.is_required]
    return {**schema, "required": required} if required else schema


def _key(key: Key) -> dict[str, Any]:
    schema = _held(key.holds)
    if key.can_be_unset or not (key.is_required or isinstance(key.holds, TableShape)):
        schema = {"anyOf": [schema, _UNSET]}
    if key.is_unused:
        return {"description": "Not used by Penstock."}
    return {"description": key.says, **schema} if key.says else schema


def _held(holds: FieldKind | TableShape | TableOfShape | ListShape) -> dict[str, Any]:
    if isinstance(holds, TableShape):
        return _table(holds)
    if isinstance(holds, TableOfShape):
        return {"type": "object", "additionalProperties": {"anyOf": [_held(holds.holds), _UNSET]}}
    if isinstance(holds, ListShape):
        return {"type": "array", "items": _table(holds.holds)}
    return holds.schema()
