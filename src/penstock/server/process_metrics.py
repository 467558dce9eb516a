"""Metrics of all server processes behind one port, so that a scrape does not meet one of them by chance.

Each process serves its own metrics on a UNIX socket in a directory that they share. Whichever of them is scraped reads
the others and answers for all, each series with the label `process`. A process that does not answer in time is left
out, as a server that is down is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

ANSWER_S: Final = 2.0


def merge(texts: Mapping[str, str]) -> str:
    """Prometheus texts as one: the families of all processes together, each sample with its process as a label.

    Args:
        texts: The text of each process, by its name.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, process))
    return "".join(
        f"{line}\n" for family, head in heads.items() for line in (*head, *samples.get(family, ()))
    )


def _labelled(sample: str, process: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{process="{process}",{rest}'
    name, _, value = sample.rpartition(" ")
    return f'{name}{{process="{process}"}} {value}'


class ProcessMetrics:
    """The metrics of this process and its siblings.

    Args:
        path: The socket of this process, `NAME.sock`, in a directory that only this account may enter.
        render: Returns the metrics of this process.
    """

    def __init__(self, path: Path, render: Callable[[], bytes]) -> None:
        self._path, self._render = path, render

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer siblings for the duration of the block."""
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._answer, self._path)
        try:
            yield
        finally:
            server.close()
            self._path.unlink(missing_ok=True)

    async def collect(self) -> bytes:
        """The metrics of all processes that answer."""
        paths = sorted(self._path.parent.glob("*.sock"))
        texts = await asyncio.gather(*map(self._read, paths))
        found = {path.stem: text for path, text in zip(paths, texts, strict=True) if text is not None}
        return merge(found).encode()

    async def _read(self, path: Path) -> str | None:
        if path == self._path:
            return (await asyncio.to_thread(self._render)).decode()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    return (await reader.read()).decode()
                finally:
                    writer.close()
        return None

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(await asyncio.to_thread(self._render))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
