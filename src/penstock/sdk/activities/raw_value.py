"""An argument whose type only the receiver knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.converters import DEFAULT, DataConverter


@dataclass(frozen=True, slots=True)
class RawValue:
    """Plain data as received. `value` is the data; `to(type)` converts it."""

    value: Any
    converter: DataConverter = field(default=DEFAULT, repr=False, compare=False)

    def to(self, hint: Any) -> Any:
        return self.converter.decode(self.converter.encode(self.value, "raw value"), hint)
