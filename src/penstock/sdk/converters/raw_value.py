"""An argument whose type only the receiver knows."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.sdk.converters.conversion_errors import ConversionError
from penstock.sdk.converters.from_plain import TypeMismatch, from_plain


class TypeReader(Protocol):
    """Converts plain data to a type."""

    def as_type(self, plain: Any, hint: Any, what: str = ...) -> Any: ...


@dataclass(frozen=True, slots=True)
class RawValue:
    """Plain data as received. `value` is the data; `to(type)` converts it."""

    value: Any
    converter: TypeReader | None = field(default=None, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The data, by the name that it has in Temporal's SDK: `payload_converter().from_payload(raw.payload, T)`."""
        return self.value

    def to(self, hint: Any) -> Any:
        """Convert the data to a type.

        Args:
            hint: the type.
        """
        if self.converter is not None:
            return self.converter.as_type(self.value, hint)
        try:
            return from_plain(self.value, hint)
        except TypeMismatch as error:
            raise ConversionError(
                "the value", error.problem, path=error.path, expected=error.expected
            ) from error.__cause__


def is_sequence_of_raw_values(hint: Any) -> bool:
    """Whether a type hint is `Sequence[RawValue]` or a list of them."""
    origin = typing.get_origin(hint)
    return (
        isinstance(origin, type) and issubclass(origin, Sequence) and typing.get_args(hint)[:1] == (RawValue,)
    )
