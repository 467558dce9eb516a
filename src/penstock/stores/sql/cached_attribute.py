"""Attributes that are made when they are first asked for, by one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from penstock.stores.sql.session import Session

T = TypeVar("T")
Owner = TypeVar("Owner")


class cached_attribute(Generic[Owner, T]):  # noqa: N801 - it is used as a decorator
    """A method whose result stays as an attribute; `functools.cached_property` without its lock."""

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


class _OfSession(Protocol):
    session: Session


class per_session(Generic[T]):  # noqa: N801 - it is used as `cached_attribute` is
    """The same for what is made of the owner's session alone."""

    def __init__(self, kind: Callable[[Session], T]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, owner: _OfSession, kind: type[Any]) -> T:
        made = owner.__dict__[self._name] = self._kind(owner.session)
        return made
