"""The search entries of runs: attributes, memo values and the parent."""

from __future__ import annotations

from penstock.core.model import Run
from penstock.core.visibility.entries import entries
from penstock.stores.sql.session import Session


def record_entries(session: Session, run: Run) -> None:
    for name, mark in entries(run):
        session.record("insert_run_attribute", run.run_id, name, mark, run.namespace, run.started_at_ms)


def replace_entries(session: Session, run: Run) -> None:
    session.record("forget_run_attributes", run.run_id)
    record_entries(session, run)
