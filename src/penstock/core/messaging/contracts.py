"""Message contracts of workflow types, as workers declare them: signals, queries, updates and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.core.call_headers import without_headers
from penstock.core.model import WorkerRecord

_PLURAL = {"signal": "signals", "query": "queries", "update": "updates"}
_FITS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "array": (list, dict),
    "null": (type(None),),
}


ANY_UPDATE = "*"
"""In place of the name of a validated update: updates whose handlers are dynamic or set at run time are validated."""


class MessageContracts(Struct, frozen=True):
    """The contracts of all workers of a type; if one of them declares none, everything is allowed."""

    of_workers: Sequence[Mapping[str, Any]]
    undeclared: bool = False
    """Whether a live worker of the type declares no contract."""
    of_absent: Sequence[Mapping[str, Any]] = ()
    """Contracts of stale workers: updates that they validate still need validation."""

    def names(self, kind: str) -> frozenset[str] | None:
        """The names that may be sent; None: not declared."""
        listed = [each.get(_PLURAL[kind]) for each in self.of_workers]
        if self.undeclared or not listed or any(not isinstance(each, list) for each in listed):
            return None
        return frozenset(str(name) for each in listed for name in each or ())

    def declared(self, kind: str) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """The names of a kind that any worker declares, and one declaration of each that has parameters."""
        names: dict[str, None] = {}
        declarations: dict[str, Mapping[str, Any]] = {}
        for contract in self.of_workers:
            listed, described = contract.get(_PLURAL[kind]), contract.get(f"{kind}_contracts")
            names |= dict.fromkeys(map(str, listed if isinstance(listed, list) else ()))
            for entry in described if isinstance(described, list) else ():
                if isinstance(entry, Mapping):
                    declarations.setdefault(str(entry.get("name")), entry)
        return tuple(names), tuple(declarations.values())

    def validates(self, update: str) -> bool:
        """Whether workflow code validates an update before it is accepted."""
        declared = [*self.of_workers, *self.of_absent]
        return any(
            {update, ANY_UPDATE}.intersection(each.get("update_validators") or ()) for each in declared
        )

    def problem(self, kind: str, name: str, arguments: object) -> str | None:
        """What is wrong with the arguments, unless they fit one of the contracts."""
        values = without_headers(arguments) if isinstance(arguments, list) else [arguments]
        problems = [_problem(each, values) for each in self._parameters(kind, name)]
        return None if not problems or None in problems else problems[0]

    def _parameters(self, kind: str, name: str) -> Iterator[Sequence[Any]]:
        """The declared parameters of a message, from each contract that has them."""
        for contract in self.of_workers:
            for entry in contract.get(f"{kind}_contracts") or ():
                if isinstance(entry, Mapping) and entry.get("name") == name:
                    parameters = entry.get("parameters")
                    if isinstance(parameters, list):
                        yield parameters


def of_type(
    workers: Sequence[WorkerRecord], workflow_type: str, absent: Sequence[WorkerRecord] = ()
) -> MessageContracts:
    """The contracts that live workers declare for a type, and those of absent workers."""
    found = [contract for each in workers if (contract := _contract(each, workflow_type)) is not None]
    silent = [each for each in workers if _contract(each, workflow_type) is None]
    return MessageContracts(
        found,
        any(each.knows(workflow_type) for each in silent),
        [contract for each in absent if (contract := _contract(each, workflow_type)) is not None],
    )


def _contract(worker: WorkerRecord, workflow_type: str) -> Mapping[str, Any] | None:
    declared = worker.advertised.get("workflow_command_contracts")
    contract = declared.get(workflow_type) if isinstance(declared, Mapping) else None
    return contract if isinstance(contract, Mapping) else None


def _problem(parameters: Sequence[Any], values: Sequence[object]) -> str | None:
    named = [each for each in parameters if isinstance(each, Mapping)]
    required = sum(bool(each.get("required")) for each in named)
    variadic = any(each.get("variadic") for each in named)
    if len(values) < required:
        return f"takes at least {required} arguments, got {len(values)}"
    if len(values) > len(named) and not variadic:
        return f"takes at most {len(named)} arguments, got {len(values)}"
    misfits = (
        f"argument {parameter.get('name') or index!r} must be {parameter.get('type')}, got {_word(value)}"
        for index, (parameter, value) in enumerate(zip(named, values, strict=False))
        if not _fits(parameter, value)
    )
    return next(misfits, None)


def _fits(parameter: Mapping[str, Any], value: object) -> bool:
    declared = parameter.get("type")
    if not isinstance(declared, str) or parameter.get("variadic"):
        return True
    if value is None:
        return bool(parameter.get("allows_null")) or bool({"null", "mixed"} & set(declared.split("|")))
    return any(_is(word.strip(), value) for word in declared.split("|"))


def _is(word: str, value: object) -> bool:
    kinds = _FITS.get(word)
    if kinds is None:
        return True
    if isinstance(value, bool) and word in ("int", "float"):
        return False
    return isinstance(value, kinds)


def _word(value: object) -> str:
    return next(
        (word for word in ("bool", "null", "string", "int", "float", "array") if _is(word, value)), "bytes"
    )
