"""Which queues an override is for: `namespace:queue`, `namespace:*`, `queue` or `*`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.diagnostics import shown
from penstock.settings.limits.limit_values import has_control
from penstock.settings.types.invalid_value import InvalidValue, quoted
from penstock.settings.types.kinds import NamespaceKind

ALL = "*"
QUEUE_NAME_MAX = 255
FORMS = 'a key is "namespace:queue", "namespace:*", "queue" or "*"'


@dataclass(frozen=True, slots=True)
class OverrideKey:
    """A namespace and a queue; None matches all."""

    namespace: str | None
    queue: str | None

    def __str__(self) -> str:
        queue = ALL if self.queue is None else self.queue
        return queue if self.namespace is None else f"{self.namespace}:{queue}"

    def covers(self, namespace: str, queue: str) -> bool:
        return self.namespace in (None, namespace) and self.queue in (None, queue)

    def overlaps(self, other: OverrideKey) -> bool:
        """Whether there can be a queue that both are for."""
        return _meets(self.namespace, other.namespace) and _meets(self.queue, other.queue)


def parse_key(text: str) -> OverrideKey:
    """Parse a key; the part before the first colon is the namespace, lower-cased. Raises `InvalidValue`."""
    before, colon, queue = text.partition(":")
    try:
        if not colon:
            return OverrideKey(None, _queue(text))
        if before == ALL:
            raise InvalidValue(f"for a queue in every namespace write {quoted(queue or ALL)}")
        return OverrideKey(namespace_name(before), _queue(queue))
    except InvalidValue as error:
        raise InvalidValue(f"{error.message}; {FORMS}") from None


def namespace_name(value: object) -> str:
    kind = NamespaceKind()
    try:
        return kind.parse(value if isinstance(value, str) else "")
    except InvalidValue:
        raise InvalidValue(f"a namespace is {kind.expects}, not {shown(value)}") from None


def _queue(text: str) -> str | None:
    if text == ALL:
        return None
    if not text.strip() or text != text.strip() or len(text) > QUEUE_NAME_MAX or has_control(text):
        raise InvalidValue(
            f"a task queue is 1 to {QUEUE_NAME_MAX} visible characters without blanks around them,"
            f" not {quoted(text)}"
        )
    return text


def _meets(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other
