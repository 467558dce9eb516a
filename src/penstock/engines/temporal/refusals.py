"""What Temporal does not have is refused by name; nothing is accepted and ignored."""

from __future__ import annotations

from penstock.sdk.failures import NotOnThisEngineError

ENGINE = "Temporal"


def not_here(what: str, why: str = "") -> NotOnThisEngineError:
    """Return the error for something that Temporal does not have."""
    return NotOnThisEngineError(what, engine=ENGINE, why=why)
