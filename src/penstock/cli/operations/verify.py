"""The command that checks whether every limit held, from a journal and from what clients saw."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import CommandReach, VerbCommand
from penstock.cli.output.exits import CommandError, Exit, echo_err
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.transport.session import CliSession, show_json
from penstock.core.verify.journal_clock import CLOCK_STEP_MS, ClockOptions, Gaps

if TYPE_CHECKING:
    from penstock.core.verify.check import EvidenceSummary
    from penstock.core.verify.findings import Findings, LawViolation

_SHOWN_MAX = 10
"""Most findings of one law that are drawn; `--json` has more."""

_HOLDERS_SHOWN_MAX = 12


class UnreadableInput(CommandError):
    """An input file that cannot be read (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, message: str) -> None:
        super().__init__(
            "input_invalid", message, "Nothing was checked. The lines are described in the guide Verify."
        )


@click.command(
    "verify",
    cls=VerbCommand,
    reach=CommandReach.HERE,
    example="penstock verify --journal journal.jsonl --client workers.jsonl",
)
@click.option(
    "--journal",
    required=True,
    type=click.Path(allow_dash=True, path_type=Path),
    metavar="FILE",
    help="The server's journal; - reads it from stdin.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Observations of a client; repeatable.",
)
@click.option(
    "--clock-step-ms",
    type=click.IntRange(0),
    default=CLOCK_STEP_MS,
    show_default=True,
    metavar="MS",
    help="A clock that steps back by more than this was set manually.",
)
@click.option("--dense", is_flag=True, help="A gap in the numbers is a finding: the journal is from SQLite.")
@click.pass_obj
def verify(
    session: CliSession, journal: Path, clients: tuple[Path, ...], clock_step_ms: int, dense: bool
) -> None:
    """Check that every limit held at every instant; exit code 1 if one did not."""
    reading = ClockOptions(clock_step_ms, Gaps.FOUND if dense else Gaps.NOTED)
    book, evidence = _checked(journal, clients, reading)
    if session.json:
        show_json(json.dumps(report(book, evidence)))
    else:
        draw(Screen(), book, evidence)
    found = sum(book.found.values())
    echo_err("Nothing was found." if not found else f"{_counted(found, 'finding')}. A promise was broken.")
    raise click.exceptions.Exit(int(Exit.REFUSED if found else Exit.DONE))


def _checked(
    journal: Path, clients: tuple[Path, ...], reading: ClockOptions
) -> tuple[Findings, EvidenceSummary]:
    from penstock.core.verify.check import check
    from penstock.wire.operations.journal import InvalidJournalLine, read_journal, read_observations

    with ExitStack() as stack:
        stack.enter_context(_no_collection())
        watch = stack.enter_context(_progress([*clients, journal]))
        try:
            opened = [(stack.enter_context(client.open("rb")), str(client)) for client in clients]
            stream = stack.enter_context(click.open_file(str(journal), "rb"))
            sightings = chain.from_iterable(read_observations(watch(each), name) for each, name in opened)
            book, evidence = check(read_journal(watch(stream), str(journal)), sightings, reading)
        except InvalidJournalLine as refusal:
            raise UnreadableInput(refusal.message) from None
        except OSError as error:
            raise UnreadableInput(f"{error.filename or journal} cannot be read: {error.strerror}.") from None
    if not evidence.journal_lines:
        raise UnreadableInput(f"{journal} is empty: there is nothing to check.")
    return book, evidence


@contextmanager
def _no_collection() -> Iterator[None]:
    """A check keeps millions of small values and makes no cycle; looking for cycles would double its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _progress(files: Iterable[Path]) -> Iterator[Any]:
    """A progress bar on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield iter
        return
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        total = sum(path.stat().st_size for path in files if path.is_file())
        task = progress.add_task("checking", total=total)

        def watch(lines: Iterable[bytes]) -> Iterator[bytes]:
            read = 0
            for line in lines:
                yield line
                read += len(line)
                if read > 1_000_000:
                    progress.advance(task, read)
                    read = 0
            progress.advance(task, read)

        yield watch


def report(book: Findings, evidence: EvidenceSummary) -> dict[str, Any]:
    """All that was checked and found, for a program."""
    from importlib.metadata import version

    from penstock.core.verify.findings import PROMISES

    return {
        "verdict": "broken" if any(book.found.values()) else "clean",
        "laws": [
            {"law": law, "promise": promise, "checked": book.checked[law], "found": book.found[law]}
            for law, promise in PROMISES.items()
        ],
        "findings": [dataclasses.asdict(finding) for finding in book.findings],
        "notices": [dataclasses.asdict(notice) for notice in book.notices],
        "not_judged": list(evidence.not_judged),
        "evidence": dataclasses.asdict(evidence) | {"penstock": version("penstock")},
    }


def draw(screen: Screen, book: Findings, evidence: EvidenceSummary) -> None:
    """All that was checked and found, for a person."""
    from penstock.core.verify.findings import PROMISES

    rows = [
        [
            name(law.value),
            plain(book.checked[law]),
            _found(book.found[law], book.checked[law]),
            plain(promise),
        ]
        for law, promise in PROMISES.items()
    ]
    screen.table(["law", "checked", "found", "promise"], rows)
    for law in PROMISES:
        found = [finding for finding in book.findings if finding.law is law]
        if found:
            screen.heading(f"{law.value}: {_counted(book.found[law], 'finding')}")
            for finding in found[:_SHOWN_MAX]:
                _draw_finding(screen, finding)
            if book.found[law] > _SHOWN_MAX:
                screen.line(ScreenCell(f"  … and {book.found[law] - _SHOWN_MAX} more", "dim"))
    if book.notices:
        screen.heading("worth knowing")
        for notice in book.notices[:_SHOWN_MAX]:
            screen.line(ScreenCell(f"  {notice.about}"), ScreenCell(f"at number {notice.seq}: {notice.said}"))
    if evidence.not_judged:
        laws = ", ".join(evidence.not_judged)
        screen.heading("not judged")
        screen.line(
            ScreenCell(f"  {laws}: the journal has no arrivals; servers of older versions write none")
        )
    screen.heading("evidence")
    screen.line(ScreenCell(_evidence_line(evidence)))


def _draw_finding(screen: Screen, finding: LawViolation) -> None:
    scope = f" in {finding.scope}" if finding.scope else ""
    screen.line(ScreenCell(f"  {_instant(finding)}", "bold"), ScreenCell(f"{finding.said}{scope}"))
    for holder in finding.holders[:_HOLDERS_SHOWN_MAX]:
        since = _clock(holder.since_ms) if finding.seq is not None else f"{holder.since_ms:.0f} ms"
        screen.line(
            ScreenCell(f"      {holder.task_id} {holder.lease}"),
            ScreenCell(f"of {holder.worker_id} since {since}", "dim"),
        )
    if len(finding.holders) > _HOLDERS_SHOWN_MAX:
        screen.line(ScreenCell(f"      … and {len(finding.holders) - _HOLDERS_SHOWN_MAX} more", "dim"))


def _found(found: int, checked: int) -> ScreenCell:
    if found:
        return ScreenCell(str(found), "red")
    return ScreenCell("0", "green") if checked else ScreenCell("-", "dim")


def _instant(finding: LawViolation) -> str:
    if finding.at_ms is None:
        return "at the end"
    if finding.seq is None:
        return f"{finding.at_ms:.0f} ms (clients' clock)"
    return f"{_clock(finding.at_ms)} (number {finding.seq})"


def _clock(at_ms: float) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms:.0f} ms"


def _evidence_line(evidence: EvidenceSummary) -> str:
    numbers = f"{evidence.first_seq} to {evidence.last_seq}"
    return (
        f"{_counted(evidence.journal_lines, 'journal line')} (numbers {numbers}): {evidence.granted:,} granted, "
        f"{evidence.started:,} started, {evidence.renewed:,} renewed, {evidence.ended:,} ended, "
        f"{evidence.arrived:,} arrived, "
        f"{evidence.live_at_end:,} live at the end, {_counted(evidence.scopes, 'scope')}; "
        f"{_counted(evidence.client_lines, 'client line')} with {_counted(evidence.client_leases, 'lease')}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
