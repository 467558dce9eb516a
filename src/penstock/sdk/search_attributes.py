"""Search attributes with types, in the shape that code for Temporal has them.

Search attributes are a mapping from names to plain values; the server knows the type of each name. A
`SearchAttributeKey` names one together with its type, so that type checkers check values, and times come back as
`datetime`. Wherever a mapping is taken, `TypedSearchAttributes` are taken as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, overload

V = TypeVar("V")
D = TypeVar("D")

SearchAttributeValue = str | int | float | bool | datetime | Sequence[str]
"""What a search attribute can hold."""


class SearchAttributeIndexedValueType(StrEnum):
    """The type of a search attribute, as the server names it."""

    TEXT = "text"
    KEYWORD = "keyword"
    INT = "int"
    DOUBLE = "double"
    BOOL = "bool"
    DATETIME = "datetime"
    KEYWORD_LIST = "keyword_list"


_PYTHON_TYPES: Final[Mapping[SearchAttributeIndexedValueType, Any]] = {
    SearchAttributeIndexedValueType.TEXT: str,
    SearchAttributeIndexedValueType.KEYWORD: str,
    SearchAttributeIndexedValueType.INT: int,
    SearchAttributeIndexedValueType.DOUBLE: float,
    SearchAttributeIndexedValueType.BOOL: bool,
    SearchAttributeIndexedValueType.DATETIME: datetime,
    SearchAttributeIndexedValueType.KEYWORD_LIST: Sequence[str],
}


@dataclass(frozen=True)
class SearchAttributeUpdate(Generic[V]):
    """A new value for a search attribute, made by its key. A value of None deletes it."""

    key: SearchAttributeKey[V]
    value: V | None


@dataclass(frozen=True)
class SearchAttributeKey(Generic[V]):
    """The name of a search attribute with its type. Create it with one of the methods `for_…`."""

    name: str
    indexed_value_type: SearchAttributeIndexedValueType

    @property
    def value_type(self) -> Any:
        """The Python type of its values."""
        return _PYTHON_TYPES[self.indexed_value_type]

    @property
    def origin_value_type(self) -> Any:
        """The Python type of its values, without type parameters."""
        is_list = self.indexed_value_type is SearchAttributeIndexedValueType.KEYWORD_LIST
        return Sequence if is_list else self.value_type

    def value_set(self, value: V) -> SearchAttributeUpdate[V]:
        """Return the update that sets a value.

        Args:
            value: the new value.
        """
        return SearchAttributeUpdate(self, value)

    def value_unset(self) -> SearchAttributeUpdate[V]:
        """Return the update that deletes the attribute."""
        return SearchAttributeUpdate(self, None)

    def read(self, value: Any) -> Any:
        """Return a value of the server as its Python type; raise `TypeError` if it has another."""
        if self.indexed_value_type is SearchAttributeIndexedValueType.DATETIME and isinstance(value, str):
            return datetime.fromisoformat(value)
        wanted = (int, float) if self.value_type is float else self.origin_value_type
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.value_type is not bool):
            raise TypeError(
                f"search attribute {self.name!r} holds {value!r}, which is no {self.indexed_value_type}"
            )
        return value

    @staticmethod
    def for_text(name: str) -> SearchAttributeKey[str]:
        """Return the key of an attribute that is searched by its words.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.TEXT)

    @staticmethod
    def for_keyword(name: str) -> SearchAttributeKey[str]:
        """Return the key of an attribute with one exact text.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.KEYWORD)

    @staticmethod
    def for_int(name: str) -> SearchAttributeKey[int]:
        """Return the key of an attribute with a whole number.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.INT)

    @staticmethod
    def for_float(name: str) -> SearchAttributeKey[float]:
        """Return the key of an attribute with a number.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.DOUBLE)

    @staticmethod
    def for_bool(name: str) -> SearchAttributeKey[bool]:
        """Return the key of an attribute that is true or false.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.BOOL)

    @staticmethod
    def for_datetime(name: str) -> SearchAttributeKey[datetime]:
        """Return the key of an attribute with a time.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.DATETIME)

    @staticmethod
    def for_keyword_list(name: str) -> SearchAttributeKey[Sequence[str]]:
        """Return the key of an attribute with several exact texts.

        Args:
            name: its name.
        """
        return SearchAttributeKey(name, SearchAttributeIndexedValueType.KEYWORD_LIST)


class SearchAttributePair(NamedTuple, Generic[V]):
    """A key and its value."""

    key: SearchAttributeKey[V]
    value: V


@dataclass(frozen=True)
class TypedSearchAttributes(Collection[SearchAttributePair[Any]]):
    """Search attributes, each with its key."""

    search_attributes: Sequence[SearchAttributePair[Any]]
    empty: ClassVar[TypedSearchAttributes]

    def __post_init__(self) -> None:
        names = [pair.key.name for pair in self.search_attributes]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ValueError(f"search attribute {double!r} is given twice")

    def __len__(self) -> int:
        return len(self.search_attributes)

    def __iter__(self) -> Iterator[SearchAttributePair[Any]]:
        return iter(self.search_attributes)

    def __contains__(self, key: object) -> bool:
        return any(pair.key == key for pair in self.search_attributes)

    def __getitem__(self, key: SearchAttributeKey[V]) -> V:
        found: V | None = self.get(key)
        if found is None:
            raise KeyError(key.name)
        return found

    @overload
    def get(self, key: SearchAttributeKey[V], default: None = None) -> V | None: ...
    @overload
    def get(self, key: SearchAttributeKey[V], default: D) -> V | D: ...
    def get(self, key: SearchAttributeKey[Any], default: Any = None) -> Any:
        """Return the value of a key.

        Args:
            key: the key.
            default: returned if there is none.

        Raises:
            TypeError: the attribute has another type than the key says.
        """
        found = next((pair for pair in self.search_attributes if pair.key.name == key.name), None)
        return default if found is None else key.read(found.value)

    def updated(self, *search_attributes: SearchAttributePair[Any]) -> TypedSearchAttributes:
        """Return a copy with other values.

        Args:
            search_attributes: the pairs that are added, or replace those with the same name.
        """
        new = {pair.key.name for pair in search_attributes}
        kept = [pair for pair in self.search_attributes if pair.key.name not in new]
        return TypedSearchAttributes([*kept, *search_attributes])


TypedSearchAttributes.empty = TypedSearchAttributes(())

GivenAttributes = Mapping[str, Any] | TypedSearchAttributes
"""Search attributes as callers give them."""
GivenUpdates = Mapping[str, Any] | Sequence[SearchAttributeUpdate[Any]]
"""Changes of search attributes as callers give them."""


@overload
def attributes_by_name(given: None) -> None: ...
@overload
def attributes_by_name(given: GivenAttributes | GivenUpdates) -> dict[str, Any]: ...
def attributes_by_name(given: GivenAttributes | GivenUpdates | None) -> dict[str, Any] | None:
    """Return attributes or updates as a mapping from names to values."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    return {each.key.name: each.value for each in given}


def typed_attributes(plain: Mapping[str, Any]) -> TypedSearchAttributes:
    """Return attributes of the server with keys. A text can be a keyword, a text or a time: `get` reads it as its key
    says.
    """
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey(name, _type_of(value)), value)
            for name, value in plain.items()
        ]
    )


def _type_of(value: Any) -> SearchAttributeIndexedValueType:
    match value:
        case bool():
            return SearchAttributeIndexedValueType.BOOL
        case int():
            return SearchAttributeIndexedValueType.INT
        case float():
            return SearchAttributeIndexedValueType.DOUBLE
        case str():
            return SearchAttributeIndexedValueType.KEYWORD
        case _:
            return SearchAttributeIndexedValueType.KEYWORD_LIST
