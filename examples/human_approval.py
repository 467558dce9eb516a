"""Human approval: a workflow waits for a person, sends a reminder, and continues without them after a timeout.

Three expense claims wait for their manager. One is approved, one is declined, one is forgotten: a reminder is sent
once, and then a timer closes it. Waiting costs nothing but a row: it may take seconds, as here, or months.

    python examples/human_approval.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from _stage import fresh, stage, tell

from penstock import Worker, activity, workflow

QUEUE = "approvals"
REMIND_AFTER = timedelta(seconds=0.6)
CLOSE_AFTER = timedelta(seconds=0.6)
"""After the reminder. Use days here, and nothing else changes."""


@dataclass
class Claim:
    who: str
    what: str
    euros: int


@dataclass
class Decision:
    approved: bool
    by: str


@activity.defn
async def send_mail(to: str, text: str) -> None:
    tell(f"mail to {to}: {text}")


@activity.defn
async def pay(claim: Claim) -> str:
    tell(f"{claim.who} is paid {claim.euros} euros")
    return f"paid {claim.euros} euros"


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.decision: Decision | None = None
        self.reminders = 0

    @workflow.signal
    def decide(self, decision: Decision) -> None:
        """Only the first decision counts."""
        self.decision = self.decision or decision

    @workflow.query
    def state(self) -> str:
        if self.decision is None:
            return f"waiting, reminded {self.reminders} times"
        return f"{'approved' if self.decision.approved else 'declined'} by {self.decision.by}"

    @workflow.run
    async def run(self, claim: Claim) -> str:
        await mail("the manager", f"{claim.who} asks for {claim.euros} euros for {claim.what}")
        if not await self.decided_within(REMIND_AFTER):
            self.reminders += 1
            await mail("the manager", f"{claim.who} still waits for an answer about {claim.what}")
            if not await self.decided_within(CLOSE_AFTER):
                await mail(claim.who, f"nobody answered about {claim.what}; ask again")
                return "closed without an answer"
        assert self.decision is not None
        if not self.decision.approved:
            await mail(claim.who, f"{self.decision.by} declined {claim.what}")
            return f"declined by {self.decision.by}"
        return await workflow.execute_activity(pay, claim, start_to_close_timeout=timedelta(seconds=10))

    async def decided_within(self, time: timedelta) -> bool:
        try:
            await workflow.wait_condition(lambda: self.decision is not None, timeout=time)
        except TimeoutError:
            return False
        return True


async def mail(to: str, text: str) -> None:
    await workflow.execute_activity(send_mail, args=[to, text], start_to_close_timeout=timedelta(seconds=10))


async def main() -> None:
    async with (
        stage() as client,
        Worker(client, task_queue=QUEUE, workflows=[Approval], activities=[send_mail, pay]),
    ):
        lunch, yacht, lamp = [
            await client.start_workflow(Approval.run, claim, id=fresh("claim"), task_queue=QUEUE)
            for claim in (
                Claim("Ada", "lunch", 30),
                Claim("Bob", "a yacht", 900_000),
                Claim("Cem", "a lamp", 40),
            )
        ]
        await lunch.signal(Approval.decide, Decision(True, by="Mia"))
        await yacht.signal(Approval.decide, Decision(False, by="Mia"))
        tell(f"lunch is {await lunch.query(Approval.state)}; the lamp is {await lamp.query(Approval.state)}")
        for name, handle in (("lunch", lunch), ("a yacht", yacht), ("a lamp", lamp)):
            tell(f"{name}: {await handle.result()}")


if __name__ == "__main__":
    asyncio.run(main())
