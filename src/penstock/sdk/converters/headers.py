"""Headers of calls, as interceptors see them: names with values that a data converter can encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

HEADERS_BYTES_MAX: Final = 65_536
"""Maximum size of the encoded headers of one call, unless a converter sets another."""


class Headers(dict[str, Any]):
    """The headers of a call. A converter encodes them in a form that tells them from an argument."""


def with_headers(arguments: Sequence[Any], headers: Mapping[str, Any]) -> Sequence[Any]:
    """Return the arguments of a call to encode: with its headers behind them, if there are any."""
    return [*arguments, Headers(headers)] if headers else arguments
