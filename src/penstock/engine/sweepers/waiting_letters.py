"""Letters between runs that were not delivered yet."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine import postman
from penstock.engine.house import House
from penstock.engine.letters import LETTERS_BELL
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def waiting_letters(house: House) -> Sweeper[str]:
    return Sweeper("waiting_letters", house, _find, postman.deliver, awaits=Due.LETTER, bell=LETTERS_BELL)


async def _find(house: House, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        return await tx.letters.waiting(limit)

    return await house.store.read(operation)
