"""The database's clock is read now and then, and extrapolated in between."""

from __future__ import annotations

from penstock.stores.postgres.database_clock import MAX_AGE_S, DatabaseClock

START_MS = 1_700_000_000_000


class Database:
    """A database clock, the monotonic clock of a server, and the latency of a response."""

    def __init__(self) -> None:
        self.asked = 0
        self.steady_s = 100.0
        self.set_by_ms = 0
        self.way_s = 0.0

    @property
    def time_ms(self) -> int:
        return START_MS + round((self.steady_s - 100) * 1000) + self.set_by_ms

    def pass_(self, seconds: float) -> None:
        self.steady_s += seconds

    async def fetchval(self, _query: str) -> int:
        self.asked += 1
        told = self.time_ms
        self.pass_(self.way_s)
        return told


def moments_of(database: Database) -> DatabaseClock:
    return DatabaseClock(lambda: database.steady_s)


async def test_the_time_is_asked_for_once_and_goes_on_by_itself():
    database = Database()
    moments = moments_of(database)
    for _ in range(10):
        assert abs(await moments.now_ms(database) - database.time_ms) <= 1
        database.pass_(MAX_AGE_S / 20)
    assert database.asked == 1


async def test_a_time_that_is_no_longer_young_is_asked_for_again():
    database = Database()
    moments = moments_of(database)
    await moments.now_ms(database)
    database.pass_(MAX_AGE_S * 2)
    assert await moments.now_ms(database) == database.time_ms
    assert database.asked == 2


async def test_an_answer_that_was_long_on_its_way_does_not_turn_time_back():
    database = Database()
    moments = moments_of(database)
    await moments.now_ms(database)
    database.pass_(MAX_AGE_S * 2)
    database.way_s = 0.5
    now_ms = await moments.now_ms(database)
    assert database.time_ms - 10 < now_ms <= database.time_ms


async def test_a_database_whose_clock_was_set_is_believed():
    for set_by_ms in (-3_600_000, 3_600_000):
        database = Database()
        moments = moments_of(database)
        await moments.now_ms(database)
        database.set_by_ms = set_by_ms
        database.pass_(MAX_AGE_S * 2)
        assert await moments.now_ms(database) == database.time_ms


async def test_clocks_that_run_unlike_do_not_drift_apart():
    database = Database()
    moments = moments_of(database)
    for _ in range(1000):
        await moments.now_ms(database)
        database.pass_(MAX_AGE_S * 1.5)
        database.set_by_ms -= 1  # it is slow by more than half a thousandth
    assert abs(await moments.now_ms(database) - database.time_ms) <= 2


async def test_another_database_is_asked_for_its_own_time():
    database = Database()
    moments = moments_of(database)
    await moments.now_ms(database)
    moments.forget()
    database.set_by_ms = -500
    assert await moments.now_ms(database) == database.time_ms
