"""Activity definitions: the name, parameters and options that `@activity.defn` attaches to a function."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from penstock.sdk.activities.defaults import NONE, ActivityDefaults
from penstock.sdk.activities.routing import RoutingKey, check_rule, key_of
from penstock.sdk.converters.raw_value import is_sequence_of_raw_values

Kind = Literal["async", "thread", "process"]
RunsIn = Literal["thread", "process"]

MARK = "__penstock_activity__"
DEFINITION = "__penstock_activity_definition__"
NAME_MAX = 255

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True, slots=True)
class ActivityMark:
    """The arguments of the decorator."""

    name: str | None
    dynamic: bool
    runs_in: RunsIn | None
    auto_heartbeat: bool | timedelta | None
    routing_key: RoutingKey | None = None
    tags: frozenset[str] = frozenset()
    pack: str | None = None
    defaults: ActivityDefaults = NONE


@dataclass(frozen=True, slots=True)
class ActivityDefinition:
    """A function that a worker runs for tasks of its name.

    A dynamic activity runs for all names without a definition.
    """

    name: str | None
    """None for a dynamic activity."""
    fn: Callable[..., Any]
    kind: Kind
    parameters: tuple[str, ...]
    """Arguments are sent by position. Keyword-only parameters come last, in the order of the signature."""
    required: int
    """Minimum number of arguments."""
    arg_types: tuple[Any, ...]
    """One type per parameter; None where the function has no annotation."""
    ret_type: Any
    dynamic: bool = False
    auto_heartbeat: bool | timedelta | None = None
    unbound: bool = False
    """Whether this is a method without an instance: it can be called by name, but not run."""
    optional: tuple[Any, ...] = ()
    """Defaults of the last parameters."""
    keywords: int = 0
    """How many of the last parameters are passed to the function by keyword."""
    routing: RoutingKey | None = None
    """How to compute the routing key from the arguments."""
    tags: frozenset[str] = frozenset()
    pack: str | None = None
    defaults: ActivityDefaults = NONE

    @classmethod
    def of(cls, fn: object) -> ActivityDefinition | None:
        """Return the definition of a decorated function, method or callable object; None if it is not decorated."""
        found = _marked(fn)
        if found is None:
            return None
        return (
            _cached_definition(fn, found[1])
            if isinstance(fn, types.FunctionType | partial)
            else _definition(*found)
        )

    @classmethod
    def must_be(cls, fn: object) -> ActivityDefinition:
        """Return the definition. Raises a `TypeError` that says how to make the function an activity."""
        found = cls.of(fn)
        if found is None:
            raise TypeError(_not_an_activity(fn))
        return found

    @classmethod
    def to_run(cls, fn: object) -> ActivityDefinition:
        """Return the definition of an activity given to a worker. Raises `TypeError` if it cannot be run."""
        found = cls.must_be(fn)
        if found.unbound:
            owner = _qualname(found.fn).rpartition(".")[0] or "the class"
            raise TypeError(
                f"{found.label} is a method without its object. Give the worker the method of an object: "
                f"activities=[{owner}(…).{getattr(found.fn, '__name__', 'method')}]"
            )
        return found

    @property
    def label(self) -> str:
        """The activity's name as used in messages."""
        return "the dynamic activity" if self.name is None else f'activity "{self.name}"'

    def bound(self, given: Sequence[Any], fn: Callable[..., Any] | None = None) -> Callable[[], Any]:
        """Return a call of the function, or of `fn` in its place, with decoded arguments."""
        called = fn or self.fn
        if not self.keywords:
            return partial(called, *given)
        first = len(self.parameters) - self.keywords
        return partial(
            called, *given[:first], **dict(zip(self.parameters[first:], given[first:], strict=False))
        )

    def routing_key(self, given: Sequence[Any]) -> str | None:
        """Return the routing key of a call with these arguments. Raises `RoutingKeyError`."""
        if self.routing is None:
            return None
        left_out = len(self.parameters) - len(given)
        values = [*given, *self.optional[len(self.optional) - left_out :]] if left_out else given
        return key_of(self.routing, self.parameters, values, self.label)

    def arity_error(self, count: int) -> str | None:
        """Return why the function cannot be called with this many arguments; None if it can."""
        if self.dynamic or self.required <= count <= len(self.parameters):
            return None
        least, most = self.required, len(self.parameters)
        wanted = str(most) if least == most else f"{least} to {most}"
        plural = "" if wanted == "1" else "s"
        names = f" ({', '.join(self.parameters)})" if self.parameters else ""
        return f"{self.label} takes {wanted} argument{plural}{names}, not {count}"


def mark(fn: Any, given: ActivityMark) -> None:
    """Attach the decorator's arguments to a function. Raises if it cannot be an activity."""
    if isinstance(fn, type):
        raise TypeError(
            f"{fn.__name__} is a class. Decorate its methods with @activity.defn and pass the worker those of an"
            " instance"
        )
    target = fn.__func__ if isinstance(fn, staticmethod | classmethod) else fn
    if not callable(target):
        raise TypeError(f"@activity.defn decorates functions, not {type(target).__name__}")
    name = _name(target, given)
    what = f'activity "{name}"' if name else "the dynamic activity"
    _check_kind(target, given, what)
    _check_parameters(target, given, what)
    _check_dispatch(target, given, what)
    marked = replace(
        given,
        name=name,
        auto_heartbeat=_checked_interval(given.auto_heartbeat, what),
        tags=checked_tags(given.tags, what),
        pack=None if given.pack is None else checked_name("pack", given.pack, what),
    )
    try:
        setattr(target, MARK, marked)
    except AttributeError:
        raise TypeError(
            f"{what}: {type(target).__name__} takes no attributes. Decorate a function or the class's __call__"
        ) from None


# Decorating


def _name(fn: Any, given: ActivityMark) -> str | None:
    if given.dynamic:
        if given.name is not None:
            raise ValueError(
                "A dynamic activity runs for every name and has none: leave name= or dynamic= out"
            )
        return None
    if given.name is not None:
        return _checked_type_name(given.name)
    own = getattr(fn, "__name__", None)
    if own == "<lambda>":
        raise ValueError("A lambda has no name: write a function with def, or use @activity.defn(name=…)")
    if own is None or own == "__call__":
        raise ValueError(f"{_qualname(fn)} has no name of its own: use @activity.defn(name=…)")
    return str(own)


def _checked_type_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name of an activity is text, not {type(name).__name__}")
    if not name or len(name) > NAME_MAX or not name.isprintable():
        raise ValueError(f"The name of an activity is 1 to {NAME_MAX} visible characters, not {name!r}")
    return name


def _check_kind(fn: Any, given: ActivityMark, what: str) -> None:
    if given.runs_in not in (None, "thread", "process"):
        raise ValueError(f'{what}: runs_in is "thread" or "process", not {given.runs_in!r}')
    called = _called(fn)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{what} is a generator. An activity returns one value: collect them in a list")
    if given.runs_in is not None and inspect.iscoroutinefunction(called):
        raise TypeError(
            f'{what} is async and runs in the event loop: write def, or leave runs_in="{given.runs_in}" out'
        )


def _check_parameters(fn: Any, given: ActivityMark, what: str) -> None:
    for each in inspect.signature(fn).parameters.values():
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(f"{what} takes *{each.name}. Name each parameter, or take one list")
        if each.kind not in (*_POSITIONAL, _KEYWORD_ONLY):
            raise TypeError(f"{what} takes **{each.name}. Name each parameter, or take one dict")
    if given.dynamic:
        _check_dynamic(fn, what)


def _check_dynamic(fn: Any, what: str) -> None:
    parameters = _parameters(fn)
    if len(parameters) != 1:
        raise TypeError(
            f"{what} takes one parameter, args: Sequence[activity.RawValue], not {len(parameters)}"
        )
    try:
        hint = typing.get_type_hints(_called(fn)).get(parameters[0].name)
    except NameError:
        return
    if not is_sequence_of_raw_values(hint):
        raise TypeError(f"{what}: annotate {parameters[0].name} as Sequence[activity.RawValue]")


def _checked_interval(auto: object, what: str) -> bool | timedelta | None:
    if auto is None or isinstance(auto, bool):
        return auto
    if not isinstance(auto, timedelta):
        raise TypeError(f"{what}: auto_heartbeat is True, False or a timedelta, not {type(auto).__name__}")
    if auto <= timedelta(0):
        raise ValueError(f"{what}: auto_heartbeat must be longer than nothing")
    return auto


def checked_tags(tags: object, what: str) -> frozenset[str]:
    """Return tags as a set. A single string is refused, because its characters would become tags."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise TypeError(f'{what}: tags is a set of texts, such as {{"gpu"}}, not {type(tags).__name__}')
    return frozenset(checked_name("a tag", each, what) for each in tags)


def checked_name(kind: str, name: object, what: str) -> str:
    """Validate the name of a pack or a tag."""
    if not isinstance(name, str):
        raise TypeError(f"{what}: {kind} is text, not {type(name).__name__}")
    if not name or len(name) > NAME_MAX or not name.isprintable() or name != name.strip():
        raise ValueError(f"{what}: {kind} is 1 to {NAME_MAX} visible characters, not {name!r}")
    return name


def _check_dispatch(fn: Any, given: ActivityMark, what: str) -> None:
    if given.dynamic and given.routing_key is not None:
        raise ValueError(f"{what} is dynamic: pass routing_key=… to the call, not to the decorator")
    names = [each.name for each in _parameters(fn)]
    if names[:1] == ["cls"] and "." in _qualname(fn):
        del names[0]
    check_rule(given.routing_key, names, what)
    given.defaults.check(what)


# Reading a decorated function


def _marked(fn: object) -> tuple[Any, ActivityMark] | None:
    found = getattr(fn, MARK, None)
    if not isinstance(found, ActivityMark) and not isinstance(fn, type):
        found = getattr(getattr(type(fn), "__call__", None), MARK, None)  # noqa: B004 - its mark is asked for
    return (fn, found) if isinstance(found, ActivityMark) else None


def _cached_definition(fn: types.FunctionType | partial[Any], given: ActivityMark) -> ActivityDefinition:
    """Return the cached definition of a function, which every call needs. A wrapper may have copied that of another."""
    marked: tuple[ActivityMark | None, ActivityDefinition | None] = fn.__dict__.get(DEFINITION, (None, None))
    mark, known = marked
    if known is None or known.fn is not fn or mark is not given:
        known = _definition(fn, given)
        fn.__dict__[DEFINITION] = (given, known)
    return known


def _definition(fn: Any, given: ActivityMark) -> ActivityDefinition:
    parameters = _parameters(fn)
    hints = _hints(fn, given.name)
    return ActivityDefinition(
        name=given.name,
        fn=fn,
        kind=_kind(fn, given),
        parameters=tuple(each.name for each in parameters),
        required=_required(parameters),
        arg_types=tuple(hints.get(each.name) for each in parameters),
        ret_type=hints.get("return"),
        dynamic=given.dynamic,
        auto_heartbeat=given.auto_heartbeat,
        unbound=_is_unbound(fn),
        optional=tuple(each.default for each in parameters if each.default is not inspect.Parameter.empty),
        keywords=sum(each.kind is _KEYWORD_ONLY for each in parameters),
        routing=given.routing_key,
        tags=given.tags,
        pack=given.pack,
        defaults=given.defaults,
    )


def _required(parameters: Sequence[inspect.Parameter]) -> int:
    """Return how many arguments must be sent: all up to the last one without a default."""
    last = [number for number, each in enumerate(parameters, 1) if each.default is inspect.Parameter.empty]
    return last[-1] if last else 0


def _kind(fn: Any, given: ActivityMark) -> Kind:
    if inspect.iscoroutinefunction(_called(fn)):
        return "async"
    return given.runs_in or "thread"


def _parameters(fn: Any) -> list[inspect.Parameter]:
    """Return the parameters that callers pass: without `self`, even if there is no instance yet."""
    found = list(inspect.signature(fn).parameters.values())
    return found[1:] if _is_unbound(fn) else found


def _is_unbound(fn: Any) -> bool:
    if not isinstance(fn, types.FunctionType) or "." not in fn.__qualname__:
        return False
    return next(iter(inspect.signature(fn).parameters), None) == "self"


def _hints(fn: Any, name: str | None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_called(fn))
    except NameError as missing:
        raise TypeError(
            f'activity "{name or "(dynamic)"}": its annotations name {missing.name!r}, which cannot be found at run '
            "time. Import it outside of `if TYPE_CHECKING:`, at the top of the module"
        ) from None


def _called(fn: Any) -> Any:
    """Return the function behind a method, a partial or a callable object."""
    while hasattr(fn, "func") and hasattr(fn, "keywords"):
        fn = fn.func
    if isinstance(fn, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return inspect.unwrap(fn)
    return getattr(type(fn), "__call__", fn)  # noqa: B004 - the method itself is asked for


def _qualname(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)


def _not_an_activity(fn: object) -> str:
    if isinstance(fn, str):
        return f"{fn!r} is a name. Give the function that runs for it, decorated with @activity.defn(name={fn!r})"
    if isinstance(fn, type):
        return (
            f"{fn.__name__} is a class. Give methods of an object of it: activities=[{fn.__name__}(…).method]"
        )
    if hasattr(fn, "__temporal_activity_definition"):
        return (
            f"{_qualname(fn)} is decorated by temporalio: write `from penstock import activity`. "
            "`penstock migrate temporal PATH` rewrites the imports of a program"
        )
    return f"{_qualname(fn)} is not an activity: decorate it with @activity.defn"
