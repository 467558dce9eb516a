"""Tables that nobody can change: what was loaded stays what its fingerprint says."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A mapping whose content is given once. It is a dict to whoever reads, compares, copies or pickles it."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a dispatch configuration does not change; load another")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Key, Value]]]:
        return type(self), (dict(self),)
