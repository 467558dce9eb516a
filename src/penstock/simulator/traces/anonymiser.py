"""Names as words that say nothing: the same name has the same word in the whole trace, and in no other.

The words are drawn by a keyed hash whose key is random and thrown away, so a word cannot be checked against a guessed
name. Two names with one word are told apart by a number. Namespaces, queues, keys, types, builds, groups, workers and
the ids of tasks, runs and leases are replaced; times, sizes, levels, weights and limits stay. The words of keys have
the order of the keys, because ties between keys go to the smaller one: so the replay stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from penstock.simulator.traces.trace_file import RecordedWorker, TraceTail
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "za")
_IDS = frozenset({"task_id", "lease", "run_id", "after"})
_NAMES = {
    "namespace": "namespace",
    "task_queue": "queue",
    "type": "type",
    "key": "key",
    "worker_id": "worker",
    "build": "build",
}


class Anonymiser:
    """Replaces the names of one trace."""

    def __init__(self, secret: bytes) -> None:
        """Draw words with a secret, which should be random and not be kept."""
        self._secret = secret[:64]
        self._words: dict[tuple[str, str], str] = {}
        self._taken: dict[tuple[str, str], int] = {}
        self._ids: dict[str, str] = {}

    def word(self, kind: str, name: str) -> str:
        """The word for a name; names of different kinds have different words. No name stays no name."""
        if not name:
            return name
        found = self._words.get((kind, name))
        if found is None:
            digest = blake2b(f"{kind}\0{name}".encode(), key=self._secret, digest_size=3).digest()
            stem = "".join(_SYLLABLES[part] for byte in digest for part in divmod(byte, 16))
            count = self._taken[kind, stem] = self._taken.get((kind, stem), 0) + 1
            found = self._words[kind, name] = stem if count == 1 else f"{stem}{count}"
        return found

    def name_keys(self, keys: Iterable[str]) -> None:
        """Choose the words of all keys, in the order of the keys."""
        names = sorted({*keys} - {""})
        words = sorted(self.word("key", each) for each in names)
        self._words.update({("key", name): word for name, word in zip(names, words, strict=True)})

    def event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """An event with words in place of names."""
        found = dict(event)
        for name, value in event.items():
            if name in _IDS:
                found[name] = self._ids.setdefault(value, f"{len(self._ids) + 1:x}")
            elif name in _NAMES:
                found[name] = self.word(_NAMES[name], value)
        return found

    def tail(self, tail: TraceTail) -> TraceTail:
        """The last line with words in place of names; what names single workers is shortened."""
        return replace(
            tail,
            workers=tuple(map(self._worker, tail.workers)),
            limits=tuple(map(self._limits, tail.limits)),
            missing=tuple(each.partition(":")[0] for each in tail.missing),
        )

    def _worker(self, each: RecordedWorker) -> RecordedWorker:
        return replace(
            each,
            worker_id=self.word("worker", each.worker_id),
            queue=self.word("queue", each.queue),
            types=tuple(self.word("type", name) for name in each.types),
        )

    def _limits(self, each: LimitSettings) -> LimitSettings:
        settings = dict(each.settings)
        for name in ("weights", "keys"):
            if name in settings:
                settings[name] = {self.word("key", key): value for key, value in settings[name].items()}
        if settings.get("dispatch_budget_group"):
            settings["dispatch_budget_group"] = self.word("group", settings["dispatch_budget_group"])
        target = LimitTarget(each.target.scope, self.word(each.target.scope, each.target.name))
        return LimitSettings(target, settings, each.at_ms)
