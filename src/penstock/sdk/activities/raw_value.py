"""An argument of which only the receiver knows the type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.converters import DEFAULT, DataConverter


@dataclass(frozen=True, slots=True)
class RawValue:
    """Plain data as it arrived: `value` is it, `to(type)` reads it as something."""

    value: Any
    converter: DataConverter = field(default=DEFAULT, repr=False, compare=False)

    def to(self, hint: Any) -> Any:
        return self.converter.decode(self.converter.encode(self.value, "raw value"), hint)
