"""Plain worker scripts: their output, and how signals stop them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from penstock.sdk.worker.lifecycle.default_logging import default_logging
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected
from tests.support.live import TOKENS, free_port

SCRIPT = """
    import asyncio, sys, threading
    from datetime import timedelta
    from penstock import Client, RetryPolicy, Worker, activity, workflow

    @activity.defn
    async def slow(name: str) -> str:
        print("began", name, flush=True)
        await asyncio.sleep(1)
        print("ended", name, flush=True)
        return name

    @activity.defn
    def stuck(name: str) -> None:
        print("began", name, flush=True)
        threading.Event().wait()

    @activity.defn
    async def broken() -> None:
        raise ValueError("a mistake")

    OPTIONS = dict(task_queue="q", activities=[slow, stuck, broken], graceful_shutdown_timeout=timedelta(seconds=30))
"""
PLAIN = """
    async def main():
        async with await Client.connect() as client:
            await Worker(client, **OPTIONS).run()
        print("main has ended", flush=True)

    asyncio.run(main())
"""
SECONDS = 60


class Script:
    """A script in its own process, read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.printed: list[str] = []
        self.told: list[str] = []

    async def until_printed(self, text: str) -> None:
        assert self.process.stdout is not None
        await self._until(self.process.stdout, self.printed, text)

    async def until_told(self, text: str) -> None:
        """Wait until a line on stderr contains this text."""
        assert self.process.stderr is not None
        await self._until(self.process.stderr, self.told, text)

    async def _until(self, stream: asyncio.StreamReader, lines: list[str], text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while line := (await stream.readline()).decode():
                lines.append(line.rstrip("\n"))
                if text in line:
                    return
        raise AssertionError(f"{text!r} did not come; there was {self.printed} and {self.told}")

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(SECONDS):
            out, err = await self.process.communicate()
        self.printed += out.decode().splitlines()
        self.told += err.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def script(folder: Path, scene: Cluster, body: str, **more: str) -> AsyncIterator[Script]:
    path = folder / "worker_script.py"
    path.write_text(textwrap.dedent(SCRIPT) + textwrap.dedent(body))
    poll_context = {
        name: value for name, value in os.environ.items() if not name.startswith(("DW_", "DURABLE_"))
    }
    poll_context |= {
        "DURABLE_WORKFLOW_SERVER_URL": scene.first.url,
        "DURABLE_WORKFLOW_NAMESPACE": scene.namespace or "default",
        "DURABLE_WORKFLOW_CONTROL_TOKEN": TOKENS["DW_OPERATOR_TOKEN"],
        "DURABLE_WORKFLOW_WORKER_TOKEN": TOKENS["DW_WORKER_TOKEN"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(path),
        cwd=folder,
        env=poll_context | more,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Script(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def start(client: Client, name: str, *args: str) -> Any:
    return await client.start_activity(name, args=list(args), id=f"{name}-1", task_queue="q")


class TestWhatAScriptPrints:
    async def test_it_says_where_it_is_connected_and_what_it_serves(
        self, scene: Cluster, tmp_path: Path
    ) -> None:
        async with script(tmp_path, scene, PLAIN) as running:
            await running.until_told("is connected to")
            line = running.told[-1]
            for part in (
                scene.first.url,
                scene.namespace or "default",
                "task queue q",
                "activities broken, slow, stuck",
                "100 slots",
            ):
                assert part in line
            running.send_signal(signal.SIGTERM)
            await running.ended()

    async def test_a_failing_activity_is_told_of_once_with_its_traceback(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        async with script(tmp_path, scene, PLAIN) as running:
            await running.until_told("is connected to")
            await start(client, "broken")
            await running.until_told("ValueError: a mistake")
            running.send_signal(signal.SIGTERM)
            await running.ended()
        told = "\n".join(running.told)
        assert told.count('raise ValueError("a mistake")') == 1
        assert "worker_script.py" in told

    async def test_a_server_that_is_down_is_told_of_at_once(self, scene: Cluster, tmp_path: Path) -> None:
        away = f"http://127.0.0.1:{free_port()}"
        async with script(tmp_path, scene, PLAIN, DURABLE_WORKFLOW_SERVER_URL=away) as running:
            await running.until_told(f"Cannot reach {away}")
            assert "Trying again in" in running.told[-1]

    async def test_one_argument_turns_it_off(self, scene: Cluster, tmp_path: Path) -> None:
        silent = PLAIN.replace("**OPTIONS", "default_logging=False, **OPTIONS")
        async with script(tmp_path, scene, silent) as running:
            asking = asyncio.create_task(running.until_printed("main has ended"))
            while not (await scene.get("/api/workers", role="operator")).body["workers"]:
                await asyncio.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            await asking
            assert await running.ended() == 0
        assert running.told == []

    @pytest.mark.parametrize("when", ["before", "later"])
    async def test_no_line_comes_twice_where_the_program_configures_logging(
        self, scene: Cluster, client: Client, tmp_path: Path, when: str
    ) -> None:
        setup = 'import logging; logging.basicConfig(level=logging.INFO, format="own: %(message)s")'
        if when == "before":
            body = PLAIN.replace("    async def main():", f"    {setup}\n\n    async def main():", 1)
        else:
            body = PLAIN.replace(
                "await Worker(client, **OPTIONS).run()",
                "worker = Worker(client, **OPTIONS)\n"
                "            running = asyncio.ensure_future(worker.run())\n"
                "            while not worker.is_running: await asyncio.sleep(0.01)\n"
                f"            {setup}\n            print('configured', flush=True)\n            await running",
            )
        async with script(tmp_path, scene, body) as running:
            await running.until_told("is connected to")
            if when == "later":
                await running.until_printed("configured")
            await start(client, "broken")
            await running.until_told("ValueError: a mistake")
            running.send_signal(signal.SIGTERM)
            await running.ended()
        told = "\n".join(running.told)
        assert told.count('raise ValueError("a mistake")') == 1
        assert 'own: Activity "broken" failed' in told


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_one_of_them_lets_what_runs_end_and_the_script_go_on(
        self, scene: Cluster, client: Client, tmp_path: Path, number: signal.Signals
    ) -> None:
        async with script(tmp_path, scene, PLAIN) as running:
            handle = await start(client, "slow", "a")
            await running.until_printed("began a")
            running.send_signal(number)
            assert await running.ended() == 0
            assert await handle.result() == "a"
        assert running.printed == ["began a", "ended a", "main has ended"]
        assert "Traceback" not in "\n".join(running.told)
        assert any(f"{number.name} received" in each for each in running.told)

    async def test_a_second_ctrl_c_ends_it_at_once_whatever_runs(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        async with script(tmp_path, scene, PLAIN) as running:
            await start(client, "stuck", "a")
            await running.until_printed("began a")
            running.send_signal(signal.SIGINT)
            await running.until_told("SIGINT received")
            await asyncio.sleep(0.3)  # earlier, both would count as one
            running.send_signal(signal.SIGINT)
            assert await running.ended() == 130
        assert "Traceback" not in "\n".join(running.told)

    async def test_sigterm_ends_a_block_after_its_tasks(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        body = """
            async def main():
                async with await Client.connect() as client:
                    try:
                        async with Worker(client, **OPTIONS):
                            await asyncio.Event().wait()
                    finally:
                        print("the block has ended", flush=True)

            asyncio.run(main())
        """
        async with script(tmp_path, scene, body) as running:
            await start(client, "slow", "a")
            await running.until_printed("began a")
            running.send_signal(signal.SIGTERM)
            assert await running.ended() == 128 + signal.SIGTERM
        assert running.printed == ["began a", "ended a", "the block has ended"]
        assert "Traceback" not in "\n".join(running.told)

    async def test_two_workers_that_run_together_both_shut_down(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        body = PLAIN.replace(
            "await Worker(client, **OPTIONS).run()",
            "await asyncio.gather(Worker(client, **OPTIONS).run(), Worker(client, **OPTIONS).run())",
        )
        async with script(tmp_path, scene, body) as running:
            await start(client, "slow", "a")
            await running.until_printed("began a")
            running.send_signal(signal.SIGTERM)
            assert await running.ended() == 0
        assert running.printed[-1] == "main has ended"

    async def test_code_beside_the_workers_gets_the_signal_when_they_have_ended(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        body = PLAIN.replace(
            "await Worker(client, **OPTIONS).run()",
            "await asyncio.gather(Worker(client, **OPTIONS).run(), asyncio.Event().wait())",
        )
        async with script(tmp_path, scene, body) as running:
            await start(client, "slow", "a")
            await running.until_printed("began a")
            running.send_signal(signal.SIGTERM)
            assert await running.ended() == -signal.SIGTERM
        assert "ended a" in running.printed

    async def test_handlers_of_the_program_are_left_alone(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        body = """
            import signal

            async def main():
                own = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, own.set)
                async with await Client.connect() as client:
                    worker = Worker(client, **OPTIONS)
                    running = asyncio.ensure_future(worker.run())
                    await own.wait()
                    print("own handler", worker.is_running, flush=True)
                    await worker.shutdown()

            asyncio.run(main())
        """
        async with script(tmp_path, scene, body) as running:
            await running.until_told("is connected to")
            running.send_signal(signal.SIGTERM)
            assert await running.ended() == 0
        assert running.printed == ["own handler True"]

    async def test_an_argument_leaves_signals_alone(self, scene: Cluster, tmp_path: Path) -> None:
        body = PLAIN.replace("**OPTIONS", "handle_signals=False, **OPTIONS")
        async with script(tmp_path, scene, body) as running:
            await running.until_told("is connected to")
            running.send_signal(signal.SIGTERM)
            assert await running.ended() == -signal.SIGTERM

    def test_handlers_are_restored_and_threads_have_none(self, scene: Cluster) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        seen: list[Any] = []

        async def run() -> None:
            async with (
                await connected(scene) as client,
                Worker(client, task_queue="q", activities=[echo]),
            ):
                seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        thread.join(SECONDS)
        assert seen == [before]
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@activity.defn
async def echo(text: str) -> str:
    return text


def unconfigured(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger of a program that has not configured logging. Called in a test, after pytest has installed its
    handlers.
    """
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return logging.getLogger("penstock")


class TestDefaultLogging:
    """The logger `penstock` as a program finds it, without a script."""

    def test_it_leaves_nothing_behind(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logger = unconfigured(monkeypatch)
        with default_logging(), default_logging():
            logging.getLogger("penstock.worker").info("one line")
        logger.info("nobody listens")
        assert capsys.readouterr().err.count("one line") == 1
        assert (logger.handlers, logger.level) == ([], logging.NOTSET)

    def test_a_level_that_the_program_has_set_stays(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logger = unconfigured(monkeypatch)
        logger.setLevel(logging.WARNING)
        try:
            with default_logging():
                logger.info("too quiet")
                logger.warning("loud enough")
            assert logger.level == logging.WARNING
        finally:
            logger.setLevel(logging.NOTSET)
        told = capsys.readouterr().err
        assert "loud enough" in told
        assert "too quiet" not in told

    def test_a_handler_of_a_child_logger_is_enough(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unconfigured(monkeypatch)
        child = logging.getLogger("penstock.worker")
        own: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: own.append(record.getMessage())  # type: ignore[method-assign]
        with default_logging():
            child.addHandler(handler)
            child.warning("to the program only")
            child.removeHandler(handler)
        assert own == ["to the program only"]
        assert "to the program only" not in capsys.readouterr().err
