r"""Validation of names and ids, with a precise message for an invalid one.

Names travel in JSON, in URL paths (percent-encoded), in log lines and on terminals. Three rules follow from that, for
every kind of name:

1. Only visible characters: no control characters, line separators or byte order marks; in workflow ids, no characters
   without width or that turn the direction of text either.
2. Not `.` or `..`, and neither of them between slashes. They are dot segments: HTTP clients and proxies remove them
   from a path, also when they are percent-encoded, so that such a name could be given and never be asked for, and
   `a/../b` would reach `b`.
3. A bounded length.

Within these rules workflow ids, activity ids, task queues, types, builds and worker ids are free. Namespaces and
streams have a smaller alphabet, which the contract defines; names of budget groups leave out the two characters that
separate the parts of a scope's name.

An `IdentifierRule` is one pattern, used by the server for its requests and by the SDK before it sends anything, and
the function that finds the first character against it. The message names that character:
"'/' is not allowed; use letters, …".
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

WORKFLOW_ID_MAX: Final = 128
NAME_MAX: Final = 255
_HIDDEN: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_DIRECTION: Final = r"\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
"""Zero-width and bidirectional control characters: ids that differ only by them look alike."""


class IdentifierRule(Struct, frozen=True):
    """The characters allowed in a kind of name."""

    allowed: str
    """The inside of a character class in a regular expression."""
    use: str
    """The allowed characters in words."""
    most: int

    @property
    def pattern(self) -> str:
        """A regular expression that excludes dot segments without lookahead, which some JSON Schema dialects lack."""
        one, no_dot = f"[{self._without('/')}]", f"[{self._without('./')}]"
        segment = rf"({no_dot}{one}*|\.{no_dot}{one}*|\.\.{one}+)"
        return rf"\A{segment}?(/{segment}?)*\Z" if self._has_slash else rf"\A{segment}\Z"

    @property
    def _has_slash(self) -> bool:
        return self.allowed.startswith("^") and "/" not in self.allowed

    def _without(self, characters: str) -> str:
        if self.allowed.startswith("^"):
            return f"^{characters}{self.allowed[1:]}"
        return "".join(each for each in self.allowed if each not in characters)

    @property
    def _others(self) -> str:
        return f"[{self.allowed[1:]}]" if self.allowed.startswith("^") else f"[^{self.allowed}]"

    def problem(self, text: str) -> str | None:
        """What is wrong with a name, as a message to follow the field's name; None if it is valid."""
        if not text:
            return "must not be empty"
        dots = next((part for part in text.split("/") if part in (".", "..")), None)
        if dots is not None:
            return f"{dots!r} is not allowed: HTTP clients remove it from paths. Use another name"
        wrong = re.search(self._others, text)
        if wrong is not None:
            return f"{shown(wrong[0])} is not allowed; use {self.use}"
        return f"must be at most {self.most} characters, not {len(text)}" if len(text) > self.most else None


def problem_with(text: str | None, pattern: str) -> str:
    """Why a text does not match one of the patterns; `text` is None if it is unknown."""
    rule = RULES.get(pattern)
    if text is None:
        return "has characters that are not allowed" + (f"; use {rule.use}" if rule is not None else "")
    found = None if rule is None else rule.problem(text)
    if found is not None:
        return found
    wrong = re.search(f"[{_HIDDEN}]", text)
    return "has the wrong form" if wrong is None else f"{shown(wrong[0])} is not allowed here"


def shown(character: str) -> str:
    r"""A character in quotes; one that cannot be seen as its code: `U+0009`."""
    return f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"


_VISIBLE: Final = "visible characters: no control characters or line breaks"
NAME: Final = IdentifierRule(f"^{_HIDDEN}", _VISIBLE, NAME_MAX)
"""Of a type, task queue, worker, build, signal."""
WORKFLOW_ID: Final = IdentifierRule(f"^{_HIDDEN}{_DIRECTION}", _VISIBLE, WORKFLOW_ID_MAX)
"""Of a workflow or a standalone activity."""
NAMESPACES_RESERVED: Final = frozenset({"system", "internal"})
NAMESPACE: Final = IdentifierRule("A-Za-z0-9._-", "letters, digits, '.', '_' and '-'", 128)
STREAM: Final = IdentifierRule("A-Za-z0-9._:-", "letters, digits, '.', '_', ':' and '-'", 128)
GROUP: Final = IdentifierRule(f"^/:{_HIDDEN}", "visible characters without '/' and ':'", 128)
RULES: Final = {rule.pattern: rule for rule in (WORKFLOW_ID, NAMESPACE, STREAM, GROUP, NAME)}


def reserved_namespace(name: str) -> str | None:
    """Why no namespace may be created under a valid name; None if one may."""
    if name in NAMESPACES_RESERVED or name.startswith("__"):
        return f"{name!r} is reserved; choose another name"
    if not name.strip("."):
        return f"{name!r} looks like a path; choose another name"
    return None
