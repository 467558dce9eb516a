"""Attributes that are created on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from penstock.stores.sql.session import Session

T = TypeVar("T")
Owner = TypeVar("Owner")


class cached_attribute(Generic[Owner, T]):  # noqa: N801 - it is used as a decorator
    """`functools.cached_property` without the lock that it has in Python 3.11."""

    def __init__(self, make: Callable[[Owner], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> cached_attribute[Owner, T]: ...
    @overload
    def __get__(self, owner: Owner, kind: type[Any]) -> T: ...
    def __get__(self, owner: Owner | None, kind: type[Any]) -> cached_attribute[Owner, T] | T:
        if owner is None:
            return self
        made = owner.__dict__[self._name] = self._make(owner)
        return made


class _HasSession(Protocol):
    session: Session


class per_session(Generic[T]):  # noqa: N801 - it is used as `cached_attribute` is
    """A cached attribute that is created from the owner's session."""

    def __init__(self, kind: Callable[[Session], T]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, owner: _HasSession, kind: type[Any]) -> T:
        made = owner.__dict__[self._name] = self._kind(owner.session)
        return made
