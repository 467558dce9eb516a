"""Every dispatch that limits counted reached its worker, or was refunded.

A server that leases a task for a poll which has ended hands it back. The journal then ends the lease as `undelivered`
and `refunded`: its dispatch, its cost, its place in a rate and its turn were given back in that transaction. Three
things break the law:

* a lease that ended undelivered and was not refunded;
* a lease that was refunded though its worker had it: a client's report on it was accepted, or it ended in a way that
  only its worker can bring about;
* a lease that reached no client and was handed back without a refund. That is known where the clients wrote down every
  poll of a worker with its answer, none of the answers holds the lease, and no client handed it back.

A lease that reached no client and ended in another way, by expiring above all, is a notice: its server or its client
died, and the journal cannot tell whether the worker had it.
"""

from __future__ import annotations

from penstock.core.verify.findings import CheckNotice, Findings, Law, LawViolation
from penstock.core.verify.journal import UNDELIVERED, LeaseEnded
from penstock.core.verify.live_leases import LiveLease
from penstock.core.verify.observed_leases import ObservedLeases

_ACCEPTED_OPS = ("complete", "fail", "heartbeat", "started", "hand_back")


class DeliveryLaw:
    """Checks "delivered" at the end of every lease that counted."""

    def __init__(self, book: Findings, seen: ObservedLeases) -> None:
        self._book = book
        self._seen = seen

    def ended(self, line: LeaseEnded, live: LiveLease | None) -> None:
        if live is None or not live.is_running:
            return
        self._book.checked[Law.DELIVERED] += 1
        if line.how == UNDELIVERED and not line.refunded:
            self._find(line, live, "was not delivered, and what it was charged was not refunded")
        elif line.refunded and (line.how != UNDELIVERED or self._is_reported(line)):
            self._find(line, live, "was refunded though its worker had it")
        elif not line.refunded and self._reached_no_client(line, live):
            if line.how == "handed_back":
                self._find(line, live, "reached no client, and was handed back without a refund")
            else:
                said = f"a lease of task {line.task_id} reached no client, and ended as {line.how}"
                self._book.notice(CheckNotice("reached-no-client", said, line.seq))

    def _is_reported(self, line: LeaseEnded) -> bool:
        reports = self._seen.reports.get(line.lease_id, ())
        return any(each.op in _ACCEPTED_OPS and each.verdict == "accepted" for each in reports)

    def _reached_no_client(self, line: LeaseEnded, live: LiveLease) -> bool:
        """Whether every poll of its worker got a response, and none of them contains the lease."""
        if line.lease_id in self._seen.leases or self._seen.reports.get(line.lease_id):
            return False
        grant = live.grant
        where = grant.worker_id, grant.namespace, grant.task_queue, grant.kind
        return where in self._seen.lines_heard_out

    def _find(self, line: LeaseEnded, live: LiveLease, said: str) -> None:
        self._book.find(
            LawViolation(
                Law.DELIVERED,
                f"a lease of task {line.task_id} {said}",
                line.at_ms,
                line.seq,
                holders=(live.holder,),
            )
        )
