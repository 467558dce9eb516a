"""Every dispatch that limits counted reached its worker, or was refunded.

A server that leases a task for a poll which has ended hands it back. The journal then ends the lease as `undelivered`
and `refunded`: its dispatch, its cost, its place in a rate and its turn were given back in that transaction. Three
things break the law:

* a lease that ended undelivered and was not refunded;
* a lease that was refunded though its worker had it: a client's report on it was accepted, or it ended in a way that
  only its worker can bring about;
* a lease that certainly was not delivered, yet ended without a refund. That is certain where the clients wrote down
  every poll of a worker with its answer, and none of the answers holds the lease.

A lease that certainly was not delivered and has *expired* is a notice: its server died before it could hand the task
back, and nobody could know any more whether the worker had it.
"""

from __future__ import annotations

from penstock.core.verifying.findings import Book, Finding, Law, Notice
from penstock.core.verifying.journal import UNDELIVERED, Ended
from penstock.core.verifying.leases import Live
from penstock.core.verifying.seen import Seen

_ACCEPTED_OPS = ("complete", "fail", "heartbeat", "started", "hand_back")


class Delivered:
    """Holds "delivered" against the end of every lease that counted."""

    def __init__(self, book: Book, seen: Seen) -> None:
        self._book = book
        self._seen = seen

    def ended(self, line: Ended, live: Live | None) -> None:
        if live is None or not live.is_running:
            return
        self._book.checked[Law.DELIVERED] += 1
        if line.how == UNDELIVERED and not line.refunded:
            self._find(line, live, "was not delivered, and what it was charged was not refunded")
        elif line.refunded and (line.how != UNDELIVERED or self._is_reported(line)):
            self._find(line, live, "was refunded though its worker had it")
        elif not line.refunded and self._was_certainly_not_delivered(line, live):
            if line.how == "expired":
                said = (
                    f"a lease of task {line.task_id} reached no client and expired: its server died with it"
                )
                self._book.notice(Notice("undelivered-expired", said, line.seq))
            else:
                self._find(line, live, f"reached no client, and ended as {line.how} without a refund")

    def _is_reported(self, line: Ended) -> bool:
        reports = self._seen.reports.get(line.lease_id, ())
        return any(each.op in _ACCEPTED_OPS and each.verdict == "accepted" for each in reports)

    def _was_certainly_not_delivered(self, line: Ended, live: Live) -> bool:
        """Whether every poll of its worker was answered, and no answer holds the lease."""
        if line.lease_id in self._seen.leases or self._seen.reports.get(line.lease_id):
            return False
        return live.grant.worker_id in self._seen.workers_heard_out

    def _find(self, line: Ended, live: Live, said: str) -> None:
        self._book.find(
            Finding(
                Law.DELIVERED,
                f"a lease of task {line.task_id} {said}",
                line.at_ms,
                line.seq,
                holders=(live.holder,),
            )
        )
