"""Renders the errors of the SDK as a Markdown page, from the classes that `penstock.failures` exports."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from penstock import failures
from penstock.sdk.errors.error_mapping import BY_REASON

_OPENING = """\
# Errors

<!-- Written by `penstock docs errors`. Change the docstrings, then run it again. -->

Every error that code of an application can catch is in one module:

```python
from penstock.failures import ApplicationError, ActivityError, WorkflowFailureError
```

`penstock.failures` is a module, and `from penstock import failures` is the same one. A restored error has the traceback
of the worker in `stack_trace`, and Python prints it as a note below the error.
"""


def errors_markdown() -> str:
    """The reference page."""
    return "\n".join([_OPENING, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    left = _classes()
    for title, base, text in (
        ("Refusals of the server", failures.ServerRefused, _REFUSALS),
        ("What travels between workflows, activities and clients", failures.FailureError, _FAILURES),
        ("Mistakes in workflow code", failures.WorkflowTaskError, _MISTAKES),
        ("Everything else", Exception, ""),
    ):
        found = [each for each in left if issubclass(each, base)]
        left = [each for each in left if each not in found]
        yield f"## {title}\n"
        if text:
            yield f"{text}\n"
        yield from _table(found, with_reasons=base is failures.ServerRefused)


_REFUSALS = """\
Each has `reason`, `message`, `status` and `details`. Programs look at the [reason](reasons.md); one without a class of
its own arrives as `ServerRefused`."""
_FAILURES = "`cause` is the error that it came from; a chain of causes is restored as it was."
_MISTAKES = """\
Such an error fails the workflow task, not the run. Its traceback is in the log of the worker, and in
`penstock workflow debug`; the run goes on when a worker has corrected code."""


def _classes() -> list[type[BaseException]]:
    named = (getattr(failures, name) for name in sorted(failures.__all__))
    return [each for each in named if inspect.isclass(each) and issubclass(each, BaseException)]


def _table(found: Sequence[type[BaseException]], *, with_reasons: bool) -> Iterator[str]:
    yield "| Error | Is a | Means |" + (" Reasons |" if with_reasons else "")
    yield "|---|---|---|" + ("---|" if with_reasons else "")
    for each in found:
        row = f"| `{each.__name__}` | {_bases(each)} | {_meaning(each)} |"
        yield row + (f" {_reasons(each)} |" if with_reasons else "")
    yield ""


def _bases(kind: type[BaseException]) -> str:
    public = [each.__name__ for each in kind.__mro__[1:] if each.__name__ in _PUBLIC]
    return f"`{public[0]}`" if public else f"`{kind.__bases__[0].__name__}`"


_PUBLIC = frozenset(failures.__all__) | {"ValueError", "RuntimeError", "Exception"}


def _meaning(kind: type[BaseException]) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def _reasons(kind: type[BaseException]) -> str:
    return ", ".join(f"`{reason}`" for reason, each in BY_REASON.items() if each is kind)
