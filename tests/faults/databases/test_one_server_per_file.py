"""One server per SQLite file: a second one is rejected, and the lock of a dead one is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.faults.observations import Kind, Start
from tests.faults.servers import Doomed, serving
from tests.support.live import running, server

pytestmark = pytest.mark.faults


async def test_a_second_server_refuses_a_file_in_use_and_takes_it_once_the_first_was_killed(
    tmp_path: Path, sqlite_database: str
) -> None:
    first, second = Doomed(tmp_path, sqlite_database), Doomed(tmp_path, sqlite_database, name="second")
    async with serving(first), Load([first.url, second.url]) as load:
        await load.start(Start(Kind.WORKFLOW, "w1"))
        late = server(tmp_path, sqlite_database, name="late")
        with pytest.raises(RuntimeError, match="store_in_use"), running(late):
            pass
        await load.start(Start(Kind.WORKFLOW, "w2"))
        await first.kill()
        async with serving(second):
            await load.start_again(every=1)
    assert [len(set(start.run_ids)) for start in load.record.starts] == [1, 1]
    assert [len(start.run_ids) for start in load.record.starts] == [2, 2]
