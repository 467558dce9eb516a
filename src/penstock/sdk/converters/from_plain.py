"""Converts plain data to the type that the receiver declares: dataclasses, models, dates, enums and others."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Final, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.sdk.converters.to_plain import is_pydantic, pydantic_adapter

_NO_SHAPE: Final = (None, Any, object, inspect.Parameter.empty)
_UNIONS: Final = (Union, types.UnionType)
_PLACE = re.compile(
    r"^(?P<problem>.*?)(?: - at (?P<place>`key` in `(?P<map>.*)`|`\$?(?P<path>.*)`))?$", re.DOTALL
)
_EXPECTED = re.compile(r"^Expected `(?P<expected>[^`]*)`(?:, got `(?P<got>[^`]*)`$)?")


class TypeMismatch(Exception):
    """Data does not have the expected type: the position and the problem."""

    def __init__(self, problem: str, path: str = "", expected: str | None = None) -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path
        self.expected = expected

    def below(self, step: str) -> TypeMismatch:
        return TypeMismatch(self.problem, f"{step}{self.path}", self.expected)


def from_plain(data: Any, hint: Any) -> Any:
    """Convert plain data to the hinted type; without a hint, return it unchanged. Raises `TypeMismatch`."""
    if any(hint is each for each in _NO_SHAPE):
        return data
    if is_pydantic(hint):
        return _validated(hint, data)
    try:
        return msgspec.convert(data, hint, str_keys=True, dec_hook=_custom)
    except msgspec.ValidationError as error:
        _refuse(error, hint)
    except TypeError:
        return _by_hand(data, hint)
    except NameError as error:
        raise TypeMismatch(
            f"is to be read as {type_name(hint)}, which cannot be resolved: {error}", expected=type_name(hint)
        ) from error


def type_name(hint: Any) -> str:
    """Return a type as it is written in source code."""
    if isinstance(hint, type) and not get_args(hint):
        return "None" if hint is type(None) else hint.__name__
    origin = get_origin(hint)
    if origin in _UNIONS:
        return " | ".join(type_name(each) for each in get_args(hint))
    if origin is None:
        return str(getattr(hint, "__name__", hint))
    return str(hint).replace("typing.", "")


def _refuse(error: msgspec.ValidationError, hint: Any) -> NoReturn:
    path = _path_of(error)
    if isinstance(error.__cause__, ValueError) and isinstance(error.__cause__.__cause__, TypeMismatch):
        inner = error.__cause__.__cause__
        raise TypeMismatch(inner.problem, path + inner.path, inner.expected) from None
    found = _PLACE.match(str(error))
    problem = found["problem"] if found else str(error)
    wanted = _EXPECTED.match(problem)
    expected = _ours(wanted["expected"]) if wanted else type_name(hint)
    problem_text = _sentence(problem)
    if found and found["map"] is not None:
        problem_text = f"has a key that {problem_text}"
    read_as = "" if wanted and expected == type_name(hint) else f" (read as {type_name(hint)})"
    raise TypeMismatch(f"{problem_text}{read_as}", path, expected) from None


_WORDS: Final = {"array": "list", "object": "map", "null": "None"}


def _ours(words: str) -> str:
    return " | ".join(_WORDS.get(word, word) for word in words.split(" | "))


def _sentence(problem: str) -> str:
    """Return the text of an msgspec error as the rest of a sentence that starts with the position."""
    found = _EXPECTED.match(problem)
    if found and found["got"]:
        return f"is {_ours(found['got'])}, and {_ours(found['expected'])} is expected"
    if problem.startswith("Object missing required field"):
        return f"lacks the field {problem.split('`')[1]}"
    if problem.startswith("Invalid"):
        return f"has an {problem[:1].lower()}{problem[1:]}"
    return f"does not fit: {problem.replace('`', '')}"


def _path_of(error: msgspec.ValidationError) -> str:
    found = _PLACE.match(str(error))
    if found is None:
        return ""
    return (found["path"] or (found["map"] or "").removeprefix("$")) or ""


# Types that msgspec does not know


def _custom(kind: Any, data: Any) -> Any:
    if is_pydantic(kind):
        return _as_value_error(lambda: _validated(kind, data))
    if get_origin(kind) is None and isinstance(kind, type):
        if isinstance(data, kind):
            return data
        return _as_value_error(lambda: _unknown(kind))
    return data


def _as_value_error(attempt: Callable[[], Any]) -> Any:
    """Call a conversion hook. msgspec adds the position to `ValueError`, but to no other error."""
    try:
        return attempt()
    except TypeMismatch as error:
        raise ValueError(error.problem) from error


def _unknown(kind: type) -> NoReturn:
    name = kind.__name__
    raise TypeMismatch(
        f"is to be read as {name}, which cannot be made from plain data: make {name} a dataclass, a msgspec "
        "Struct or a pydantic model",
        expected=name,
    )


def _validated(kind: type, data: Any) -> Any:
    adapter = pydantic_adapter(kind)
    try:
        return adapter.validate_json(msgspec.json.encode(data))
    except ValueError as error:
        first = _first_error(error)
        raise TypeMismatch(
            f"does not fit: {first[1]} (read as {kind.__name__})", first[0], expected=kind.__name__
        ) from error


def _first_error(error: ValueError) -> tuple[str, str]:
    listed = error.errors() if hasattr(error, "errors") else []
    if not listed:
        return "", str(error)
    first = listed[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first.get("loc", ()))
    return path, str(first.get("msg", error))


# Types that msgspec refuses: unions of several classes, enums of other values, and containers of them


def _by_hand(data: Any, hint: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return from_plain(data, inner[0])
    if origin in _UNIONS:
        return _one_of(data, inner, hint)
    if isinstance(origin, type):
        return _container(data, origin, inner, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(data, hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(data, hint)
    raise TypeMismatch(
        f"is to be read as {type_name(hint)}, which is not supported as a type of data",
        expected=type_name(hint),
    )


def _one_of(data: Any, choices: tuple[Any, ...], hint: Any) -> Any:
    """Return the data as the first matching choice, trying those first that have a field for every key."""
    reasons: list[str] = []
    for choice in sorted(choices, key=lambda each: _left_over(data, each)):
        try:
            return from_plain(data, choice)
        except TypeMismatch as error:
            reasons.append(f"{type_name(choice)}: {error.path} {error.problem}".replace(":  ", ": "))
    raise TypeMismatch(f"fits none of {type_name(hint)} ({'; '.join(reasons)})", expected=type_name(hint))


def _left_over(data: Any, choice: Any) -> int:
    """Return how many keys of a map are not fields of the choice."""
    known = _field_names(choice)
    return 0 if known is None or not isinstance(data, Mapping) else len(data.keys() - known)


def _field_names(choice: Any) -> set[str] | None:
    if isinstance(choice, type) and dataclasses.is_dataclass(choice):
        return {field.name for field in dataclasses.fields(choice)}
    if isinstance(choice, type) and issubclass(choice, msgspec.Struct):
        return set(choice.__struct_encode_fields__)
    if hasattr(choice, "model_fields"):
        return {field.alias or name for name, field in choice.model_fields.items()}
    return None


def _container(data: Any, origin: type, inner: tuple[Any, ...], hint: Any) -> Any:
    if issubclass(origin, Mapping):
        return _mapping(data, inner, hint)
    if not isinstance(data, list):
        raise _expected(hint, data)
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        if len(data) != len(inner):
            raise TypeMismatch(
                f"has {len(data)} items, and {type_name(hint)} is expected", expected=type_name(hint)
            )
        return tuple(_below(f"[{at}]", item, inner[at]) for at, item in enumerate(data))
    items = [_below(f"[{at}]", item, inner[0]) for at, item in enumerate(data)]
    return origin(items) if origin in (tuple, set, frozenset) else items


def _mapping(data: Any, inner: tuple[Any, ...], hint: Any) -> Any:
    if not isinstance(data, Mapping):
        raise _expected(hint, data)
    keys = from_plain(dict.fromkeys(data), dict[inner[0], None])  # type: ignore[valid-type]
    values = [_below(f"[{key!r}]", value, inner[1]) for key, value in data.items()]
    return dict(zip(keys, values, strict=True))


def _member(data: Any, kind: type[Enum]) -> Enum:
    for value in (data, tuple(data) if isinstance(data, list) else data):
        try:
            return kind(value)
        except ValueError:
            continue
    raise TypeMismatch(f"is {data!r}, which is none of the values of {kind.__name__}", expected=kind.__name__)


def _dataclass(data: Any, kind: type) -> Any:
    if not isinstance(data, Mapping):
        raise _expected(kind, data)
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for field in dataclasses.fields(kind):
        if field.init and field.name in data:
            values[field.name] = _below(f".{field.name}", data[field.name], hints[field.name])
        elif field.init and field.default is field.default_factory is dataclasses.MISSING:
            raise TypeMismatch(
                f"lacks the field {field.name} (read as {type_name(kind)})", expected=type_name(kind)
            )
    return kind(**values)


def _below(step: str, data: Any, hint: Any) -> Any:
    try:
        return from_plain(data, hint)
    except TypeMismatch as error:
        raise error.below(step) from None


def _expected(hint: Any, data: Any) -> TypeMismatch:
    return TypeMismatch(
        f"is {type(data).__name__}, and {type_name(hint)} is expected", expected=type_name(hint)
    )
