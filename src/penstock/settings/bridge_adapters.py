"""Declared bridge adapters: `[bridge_adapters.NAME]` in the file, or `DW_BRIDGE_ADAPTERS` as JSON.

A secret is given as a reference, `env:NAME` or `file:/path`, never as text, so that the file can be shown and kept in a
repository. References are resolved once, when the server starts; one that leads nowhere is a reason not to start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.core.bridges.mappings import (
    EventRoute,
    Template,
    ValuePath,
    parse_path,
    parse_template,
    parse_value,
)
from penstock.core.bridges.outcomes import ADAPTER_MAX, ADAPTER_NAME, TARGET_FIELDS, BridgeAction
from penstock.core.bridges.signatures import SignatureScheme, signing_key
from penstock.schema.json_object import JsonMembers
from penstock.schema.kinds import Choice, Kind, Text, Whole
from penstock.schema.paths import KeyPath
from penstock.schema.problems import InvalidValue
from penstock.schema.shapes import Key, ListOf, ShapeReader, Table, TableOf
from penstock.settings.declared_adapters import BYTES_DEFAULT, TOLERANCE_S_DEFAULT, DeclaredAdapter
from penstock.settings.diagnostics import Diagnostics
from penstock.settings.limits.limit_shapes import PlacedValue
from penstock.settings.types.kinds import NAMESPACE
from penstock.settings.types.secret import Secret
from penstock.settings.types.secret_files import read_secret_file

SETTING: Final = "DW_BRIDGE_ADAPTERS"
TABLE: Final = "bridge_adapters"
SECRETS_MAX: Final = 5
SECRET_LENGTH_MIN: Final = 16
_REFERENCE: Final = re.compile(r"env:(?!DW_)[A-Za-z_][A-Za-z0-9_]*|file:/.+", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Template(Kind):
    """A text with placeholders."""

    @property
    def expects(self) -> str:
        return "a text, with placeholders such as {data.id}"

    def read(self, value: object) -> Template:
        if not isinstance(value, str) or not value:
            raise self.refuse(value)
        return parse_template(value)


@dataclass(frozen=True, slots=True)
class _Arguments(Kind):
    """The arguments of a command: a list, or one object; texts in them may have placeholders."""

    @property
    def expects(self) -> str:
        return "a list of arguments, one object, or a placeholder such as {data}"

    def read(self, value: object) -> object:
        if not isinstance(value, list | dict | str):
            raise self.refuse(value)
        return parse_value(value)


@dataclass(frozen=True, slots=True)
class _Allowed(Kind):
    """The values that a path may have: one, or a list."""

    @property
    def expects(self) -> str:
        return "a text, a whole number, true or false, or a list of these"

    def read(self, value: object) -> tuple[object, ...]:
        allowed = value if isinstance(value, list) else [value]
        if not allowed or not all(isinstance(each, str | int | bool) for each in allowed):
            raise self.refuse(value)
        return tuple(allowed)


@dataclass(frozen=True, slots=True)
class _References(Kind):
    """Where the secrets are. A refusal does not repeat the value, which may be a secret in the wrong place."""

    @property
    def expects(self) -> str:
        return f"a list of 1 to {SECRETS_MAX} references to secrets: env:NAME (not DW_*) or file:/path"

    def read(self, value: object) -> tuple[str, ...]:
        listed = value if isinstance(value, list) else []
        found = tuple(dict.fromkeys(each for each in listed if isinstance(each, str)))
        is_complete = 1 <= len(found) <= SECRETS_MAX and len(found) == len(listed)
        if not is_complete or not all(map(_REFERENCE.fullmatch, found)):
            raise InvalidValue(f"must be {self.expects}")
        return found


_PATH = Text("a path into the body, such as data.id", convert=parse_path)
_ROUTE = Table(
    (
        Key("action", Choice(BridgeAction), is_required=True),
        Key("target", TableOf(_Template(), "field of the target"), is_required=True),
        Key("input", _Arguments()),
        Key("when", TableOf(_Allowed(), "path", _PATH)),
    )
)
_ADAPTER = Table(
    (
        Key("scheme", Choice(SignatureScheme), is_required=True),
        Key("secrets", _References(), is_required=True),
        Key("routes", ListOf(_ROUTE), is_required=True),
        Key("namespace", NAMESPACE),
        Key("tolerance_seconds", Whole(1, 3_600, "seconds")),
        Key("max_bytes", Whole(256, 64 * 1024 * 1024, "bytes")),
        Key("idempotency_key", _Template()),
    ),
    instead={"secret": "write secrets, a list of references such as env:NAME: two while one is replaced"},
)
ADAPTERS = TableOf(
    _ADAPTER,
    "adapter",
    Text(f"1 to {ADAPTER_MAX} letters, digits, dots, underscores, colons or dashes", ADAPTER_NAME),
)


def read_adapters(
    given: PlacedValue | None, environ: Mapping[str, str], diagnostics: Diagnostics
) -> tuple[DeclaredAdapter, ...]:
    """All declared adapters. If `diagnostics` has problems afterwards, the result must not be used.

    Args:
        given: The table of the file or the object of the setting; None: no adapter is declared.
        environ: The environment, for secrets by reference.
        diagnostics: Collects every problem.
    """
    if given is None:
        return ()
    word = JsonMembers.word if isinstance(given.value, JsonMembers) else "a table"
    reader = ShapeReader((), given.origin_of, unset=None, table_word=word)
    found = reader.read(ADAPTERS, given.value, given.path)
    adapters = []
    if not reader.problems:
        for name, fields in found.items():
            adapters.append(_Declaration(reader, environ, (*given.path, name)).adapter(name, fields))
    diagnostics.add(reader.problems)
    return tuple(adapters)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """One table of an adapter, whose fields have the right types, and the checks that need more than one of them."""

    reader: ShapeReader
    environ: Mapping[str, str] = field(repr=False)
    path: KeyPath

    def adapter(self, name: str, fields: dict[str, Any]) -> DeclaredAdapter:
        scheme = SignatureScheme(fields["scheme"])
        references: tuple[str, ...] = fields["secrets"]
        if not fields["routes"]:
            self.reader.refuse((*self.path, "routes"), "must have at least one route")
        return DeclaredAdapter(
            name=name,
            scheme=scheme,
            keys=tuple(self._secrets(scheme, references)),
            references=references,
            routes=tuple(self._route(place, route) for place, route in enumerate(fields["routes"])),
            namespace=fields.get("namespace"),
            tolerance_ms=fields.get("tolerance_seconds", TOLERANCE_S_DEFAULT) * 1000,
            bytes_max=fields.get("max_bytes", BYTES_DEFAULT),
            idempotency_key=fields.get("idempotency_key"),
        )

    def _secrets(self, scheme: SignatureScheme, references: tuple[str, ...]) -> Iterator[Secret]:
        for place, reference in enumerate(references):
            try:
                text = self._resolved(reference)
                if len(signing_key(scheme, text)) < SECRET_LENGTH_MIN:
                    raise InvalidValue(
                        f"leads to a secret of less than {SECRET_LENGTH_MIN} bytes; use a longer one"
                    )
            except ValueError as error:
                self.reader.refuse((*self.path, "secrets", place), str(error))
            else:
                yield Secret(text)

    def _resolved(self, reference: str) -> str:
        kind, _, place = reference.partition(":")
        if kind == "file":
            return read_secret_file(Path(place))
        text = self.environ.get(place, "").strip()
        if not text:
            raise InvalidValue(f"names the variable {place}, which is not set")
        return text

    def _route(self, place: int, fields: dict[str, Any]) -> EventRoute:
        action, target = BridgeAction(fields["action"]), fields["target"]
        path = (*self.path, "routes", place, "target")
        required, optional = TARGET_FIELDS[action]
        for name in sorted(required - target.keys()):
            self.reader.refuse((*path, name), f"{name!r} is required for {action.value}")
        for name in sorted(target.keys() - required - optional):
            known = ", ".join(sorted(required | optional))
            self.reader.refuse((*path, name), f"unknown key; {action.value} has {known}")
        when: dict[ValuePath, tuple[object, ...]] = fields.get("when", {})
        return EventRoute(action.value, target, fields.get("input"), tuple(when.items()))
