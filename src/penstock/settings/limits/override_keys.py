"""Which queues an override is for: `namespace:queue`, `namespace:*`, `queue` or `*`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.schema.problems import InvalidValue, quoted, shown
from penstock.settings.types.kinds import NAMESPACE

ALL = "*"
QUEUE_NAME_MAX = 255
FORMS = 'a key is "namespace:queue", "namespace:*", "queue" or "*"'
CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff"
"""Control characters and unassigned code points, for a class of characters."""
_QUEUE = re.compile(rf"(?!\s)[^{CONTROL}]{{1,{QUEUE_NAME_MAX}}}(?<!\s)")


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
    try:
        return str(NAMESPACE.read(value))
    except InvalidValue:
        raise InvalidValue(f"a namespace is {NAMESPACE.expects}, not {shown(value)}") from None


def _queue(text: str) -> str | None:
    if text == ALL:
        return None
    if not _QUEUE.fullmatch(text):
        raise InvalidValue(
            f"a task queue is 1 to {QUEUE_NAME_MAX} visible characters without blanks around them,"
            f" not {quoted(text)}"
        )
    return text


def _meets(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other
