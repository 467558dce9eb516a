"""The JSON Schema of a shape, for editors and other checkers."""

from __future__ import annotations

from typing import Any

from penstock.schema.shapes import UNSET, Key, ListOf, Shape, Table, TableOf

_UNSET = {"const": UNSET}


def schema_of(shape: Shape) -> dict[str, Any]:
    """What a value of the shape may be."""
    if isinstance(shape, Table):
        return _table(shape)
    if isinstance(shape, TableOf):
        return {"type": "object", "additionalProperties": {"anyOf": [schema_of(shape.holds), _UNSET]}}
    if isinstance(shape, ListOf):
        return {"type": "array", "items": _table(shape.holds)}
    return shape.schema()


def _table(shape: Table) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: _key(key) for key in shape.keys},
        "additionalProperties": shape.also_unused.schema() if shape.also_unused is not None else False,
    }
    required = [key.name for key in shape.keys if key.is_required]
    return {**schema, "required": required} if required else schema


def _key(key: Key) -> dict[str, Any]:
    if key.is_unused:
        return {"description": "Not used by Penstock."}
    schema = schema_of(key.holds)
    if key.can_be_unset or not (key.is_required or isinstance(key.holds, Table)):
        schema = {"anyOf": [schema, _UNSET]}
    return {"description": key.says, **schema} if key.says else schema
