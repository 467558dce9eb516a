"""What a rehearsal changes: limits (`--set`), workers (`--workers`, `--kill`), and the load of a key (`--key`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidInput, Reason
from penstock.schema.nearest import nearest
from penstock.simulator.model_file import (
    ArrivalsModel,
    ChangeModel,
    ModelFile,
    Time,
    WorkersModel,
    milliseconds,
)
from penstock.wire.limits.limit_paths import KEYS, WEIGHTS, LimitTarget, check_setting

COUNT_MAX = 1_000_000


class RehearsedSetting(Struct, frozen=True):
    """A new value of one setting: `queue:invoices.max_active_leases=5`."""

    target: LimitTarget
    path: tuple[str, ...]
    """The setting; for a fairness key also the key."""
    value: Any

    def __str__(self) -> str:
        return f"{self.target}.{'.'.join(self.path)}={json.dumps(self.value)}"


class WorkersChange(Struct, frozen=True):
    """Another number of workers: of a queue, or of the only pool there is."""

    queue: str | None
    count: int | None
    factor: float | None

    def __str__(self) -> str:
        what = f"{self.factor:g}x" if self.count is None else str(self.count)
        return f"workers {self.queue}={what}" if self.queue else f"workers {what}"


class KeyLoadChange(Struct, frozen=True):
    """A key sends more tasks, or fewer."""

    key: str
    factor: float

    def __str__(self) -> str:
        return f"key {self.key}={self.factor:g}x"


class WorkersDeath(Struct, frozen=True):
    """All workers of a queue are killed at a time."""

    queue: str
    at: Time

    def __str__(self) -> str:
        return f"kill {self.queue}@{self.at}"


Change = RehearsedSetting | WorkersChange | KeyLoadChange | WorkersDeath


def parse_setting(text: str) -> RehearsedSetting:
    """Read `TARGET.SETTING=VALUE`. Raises `InvalidInput` with an example."""
    left, equals, value = text.partition("=")
    if not equals:
        raise _invalid(f"{text!r} has no value; write it like queue:invoices.max_active_leases=5")
    scope, colon, rest = left.partition(":")
    if scope in ("queue", "group") and colon:
        return _named(text, scope, rest, value)
    scope, dot, setting = left.partition(".")
    if scope not in ("namespace", "cluster") or not dot:
        raise _invalid(
            f"{left!r} names no limit; write queue:NAME.SETTING, group:NAME.SETTING, namespace.SETTING or "
            "cluster.SETTING"
        )
    target = LimitTarget(scope)
    check_setting(target, setting)
    return RehearsedSetting(target, (setting,), _value(value))


def _named(text: str, scope: str, rest: str, value: str) -> RehearsedSetting:
    """The name may contain dots: it ends before the first part that is a setting."""
    parts = rest.split(".")
    first_error: InvalidInput | None = None
    for index in range(1, len(parts)):
        target, path = LimitTarget(scope, ".".join(parts[:index])), parts[index:]
        try:
            check_setting(target, path[0])
        except InvalidInput as error:
            first_error = first_error or error
            continue
        if path[0] == WEIGHTS and len(path) > 1:
            path = [WEIGHTS, ".".join(path[1:])]
        elif path[0] == KEYS and len(path) > 2:
            path = [KEYS, ".".join(path[1:-1]), path[-1]]
        elif len(path) > 1 or path[0] in (WEIGHTS, KEYS):
            continue
        return RehearsedSetting(target, tuple(path), _value(value))
    raise first_error or _invalid(f"{text!r} names no setting; write {scope}:NAME.SETTING=VALUE")


def of_change_set(items: Iterable[Mapping[str, Any]]) -> list[Change]:
    """The settings of a change set, as the API shows them."""
    return [_item(each) for each in items]


def _item(item: Mapping[str, Any]) -> RehearsedSetting:
    scope, _, name = item["target"].partition(":")
    key, setting = item["fairness_key"], item["setting"]
    path: tuple[str, ...] = (setting,)
    if key is not None:
        path = (WEIGHTS, key) if setting == "fairness_weight_override" else (KEYS, key, setting)
    return RehearsedSetting(LimitTarget(scope, name.removeprefix("*/")), path, item["after"])


def parse_workers(text: str) -> WorkersChange:
    """Read `QUEUE=COUNT`, `COUNT`, or either with a factor such as `2x`."""
    queue, equals, amount = text.rpartition("=")
    if amount.endswith("x"):
        return WorkersChange(queue if equals else None, None, _factor(amount, text))
    if not amount.isdecimal() or int(amount) > COUNT_MAX:
        raise _invalid(f"{text!r} is no number of workers; write 20, 2x, or QUEUE=20")
    return WorkersChange(queue if equals else None, int(amount), None)


def parse_key_load(text: str) -> KeyLoadChange:
    """Read `KEY=2x`."""
    key, equals, amount = text.rpartition("=")
    if not equals or not amount.endswith("x"):
        raise _invalid(f"{text!r} is no load of a key; write tenant-a=2x, or tenant-a=0x if it leaves")
    return KeyLoadChange(key, _factor(amount, text))


def parse_kill(text: str) -> WorkersDeath:
    """Read `QUEUE@TIME`."""
    queue, at, moment = text.rpartition("@")
    if not at or not queue:
        raise _invalid(f"{text!r} is no death of workers; write invoices@10m")
    milliseconds(moment)
    return WorkersDeath(queue, moment)


def changed(model: ModelFile, changes: Iterable[Change]) -> ModelFile:
    """The model with all changes. Raises `InvalidInput` for a queue or key that it does not have."""
    for change in changes:
        match change:
            case RehearsedSetting():
                model = _with_setting(model, change)
            case WorkersChange():
                model = _with_workers(model, change)
            case KeyLoadChange():
                model = _with_load(model, change)
            case WorkersDeath():
                model = _with_death(model, change)
    return model


def _with_setting(model: ModelFile, change: RehearsedSetting) -> ModelFile:
    """In force from the beginning; later changes of the same setting in the file are dropped, not to undo it."""
    target = change.target
    if target.scope == "queue":
        check_known(target.name, {each.queue for each in model.arrivals}, "queue")
        model = replace(
            model, queues=model.queues | {target.name: _set(model.queues.get(target.name, {}), change)}
        )
    elif target.scope == "group":
        model = replace(
            model, groups=model.groups | {target.name: _set(model.groups.get(target.name, {}), change)}
        )
    elif target.scope == "namespace":
        model = replace(model, namespace=_set(model.namespace, change))
    else:
        model = replace(model, cluster=_set(model.cluster, change))
    return replace(model, changes=[_without(each, change) for each in model.changes])


def _set(settings: dict[str, Any], change: RehearsedSetting) -> dict[str, Any]:
    first, *rest = change.path
    if not rest:
        return settings | {first: change.value}
    inner = settings.get(first) or {}
    if len(rest) == 1:
        return settings | {first: inner | {rest[0]: change.value}}
    key, name = rest
    return settings | {first: inner | {key: (inner.get(key) or {}) | {name: change.value}}}


def _without(later: ChangeModel, change: RehearsedSetting) -> ChangeModel:
    name, setting = change.target.name, change.path[0]

    def kept(settings: dict[str, Any]) -> dict[str, Any]:
        return {each: value for each, value in settings.items() if each != setting or len(change.path) > 1}

    match change.target.scope:
        case "queue" if name in later.queues:
            return replace(later, queues=later.queues | {name: kept(later.queues[name])})
        case "group" if name in later.groups:
            return replace(later, groups=later.groups | {name: kept(later.groups[name])})
        case "namespace":
            return replace(later, namespace=kept(later.namespace))
        case "cluster":
            return replace(later, cluster=kept(later.cluster))
        case _:
            return later


def _with_workers(model: ModelFile, change: WorkersChange) -> ModelFile:
    concerned = [each for each in model.workers if change.queue in (None, each.queue)]
    if change.queue is not None:
        check_known(change.queue, {each.queue for each in model.workers}, "queue with workers")
    if change.count is not None and len(concerned) != 1:
        raise _invalid(
            f"{change}: there are {len(concerned)} pools of workers; name the queue, or write a factor"
        )

    def of(pool: WorkersModel) -> WorkersModel:
        count = change.count if change.count is not None else round(pool.count * (change.factor or 0))
        return replace(pool, count=min(count, COUNT_MAX))

    return _with_pools(model, lambda pool: of(pool) if pool in concerned else pool)


def _with_death(model: ModelFile, change: WorkersDeath) -> ModelFile:
    check_known(change.queue, {each.queue for each in model.workers}, "queue with workers")

    def of(pool: WorkersModel) -> WorkersModel:
        return replace(pool, dies=change.at, leaves=None) if pool.queue == change.queue else pool

    return _with_pools(model, of)


def _with_pools(model: ModelFile, of: Callable[[WorkersModel], WorkersModel]) -> ModelFile:
    return replace(model, workers=[of(pool) for pool in model.workers])


def _with_load(model: ModelFile, change: KeyLoadChange) -> ModelFile:
    """Streams of the key with another rate. One without tasks stays, so that the draws of the others stay the same."""
    check_known(change.key, {each.key for each in model.arrivals}, "fairness key")

    def of(stream: ArrivalsModel) -> ArrivalsModel:
        if stream.key != change.key:
            return stream
        if change.factor == 0:
            return replace(stream, count=None, per_minute=0.0)
        if stream.count is not None:
            return replace(stream, count=max(1, round(stream.count * change.factor)))
        assert stream.per_minute is not None, "a stream has a rate or a count"
        return replace(stream, per_minute=stream.per_minute * change.factor)

    return replace(model, arrivals=[of(stream) for stream in model.arrivals])


def check_known(name: str, known: Iterable[str], what: str) -> None:
    there = sorted(set(known))
    if name in there:
        return
    guesses = nearest(name, there)
    advice = (
        f"did you mean {' or '.join(guesses)}?" if guesses else f"there are: {', '.join(there) or 'none'}."
    )
    raise _invalid(f"There is no {what} {name!r}; {advice}")


def _factor(amount: str, text: str) -> float:
    try:
        factor = float(amount[:-1])
    except ValueError:
        factor = -1.0
    if not 0 <= factor <= 1000:
        raise _invalid(f"{text!r} is no factor; write 2x, 0.5x or 0x, up to 1000x")
    return factor


def _value(text: str) -> Any:
    """A JSON value where it is one, else the text: `5`, `2.5`, `true`, `default`, `sliding`."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
