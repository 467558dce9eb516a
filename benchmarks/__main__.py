"""`python -m benchmarks`: measure, print tables, keep the JSON; or make one report of the runs that were kept."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.charts import draw
from benchmarks.client_processes import crew
from benchmarks.databases import durable_postgres
from benchmarks.environment import facts
from benchmarks.group_commit import NothingToMerge, merged, read
from benchmarks.markdown import page, write_docs
from benchmarks.parts import LIMITS, PARTS, Choice, Run
from benchmarks.peer_measures import Workload
from benchmarks.report import show
from benchmarks.sdk_systems import surroundings
from benchmarks.side_by_side import SYSTEMS
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.targets import as_rows, judged
from benchmarks.workloads import WORKLOADS, Campaign
from tests.support.fork_server import SWITCH as FORKS

TARGETS = "targets"
JUDGED = frozenset({"peers", "profile", "beside", "dispatch-rates", "admission", "sdk"})
"""The parts in which the targets are measured, and what binds those that are missed."""
NAMES = (
    *(store.value for store in StoreName),
    TARGETS,
    LIMITS,
    *(each.name for each in WORKLOADS),
    *(part.name for part in PARTS),
)
USUAL = frozenset(NAMES) - {TARGETS} - {part.name for part in PARTS if part.only_if_named}
RESULTS = Path(__file__).parent / "results"
PRINTED_WIDTH = 200


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        report = _merge(options.merge) if options.merge is not None else _measure(options)
    except NothingToMerge as nothing:
        print(nothing, file=sys.stderr)
        return 2
    path = _keep(report, options.json)
    path.with_suffix(".md").write_text(page(report))
    _say(f"kept {path} and {path.with_suffix('.md').name}")
    show(report, Console(width=None if sys.stdout.isatty() else PRINTED_WIDTH))
    for path in draw(report, options.plots) if options.plots else ():
        _say(f"drew {path}")
    for path in write_docs(report, options.docs) if options.docs else ():
        _say(f"wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke; its figures mean nothing")
    _add_repeated(parser, "--only", NAMES, "a store, a part, or all parts with targets")
    _add_repeated(parser, "--system", SYSTEMS, "of the part peers, only this one")
    _add_repeated(
        parser, "--workload", [each.value for each in Workload], "of peers and profile, only this one"
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help="of the part peers; 3 unless said")
    parser.add_argument(
        "--minutes", type=float, default=60.0, metavar="N", help="of the part soak; 60 unless said"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes, its tables beside it")
    parser.add_argument(
        "--merge",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="measure nothing: make one report of these results, or of all full runs that were kept",
    )
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="draw the parts peers and profile into this folder"
    )
    parser.add_argument(
        "--docs",
        type=Path,
        metavar="FOLDER",
        help="put pictures and tables of peers, profile and targets into this documentation",
    )
    return parser


def _add_repeated(parser: argparse.ArgumentParser, flag: str, names: Sequence[str], about: str) -> None:
    listed = "; ".join(names)
    parser.add_argument(
        flag, action="append", choices=names, metavar="NAME", help=f"{about}, may be repeated: {listed}"
    )


def _merge(paths: Sequence[Path]) -> dict[str, Any]:
    report = merged(read(paths or [RESULTS]))
    return report | {"run": "merged", "is_merged": True, "targets": as_rows(judged(report))}


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    choice = Choice(
        systems=options.system or SYSTEMS,
        workloads=[Workload(name) for name in options.workload or Workload],
        repetitions=options.repetitions,
        minutes=options.minutes,
    )
    sizes, only = QUICK if options.quick else FULL, frozenset(options.only or USUAL)
    report = measure(sizes, only, choice, lambda found: _keep(found, options.json))
    return report | {"targets": as_rows(judged(report))}


def measure(
    sizes: Sizes, only: frozenset[str], choice: Choice, keep: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Measure what `only` names; stores alone mean every usual part on them, parts alone mean both stores.

    What is found is kept after every part, in case a later one fails.
    """
    stores = [store for store in StoreName if store in only] or list(StoreName)
    parts = only - set(StoreName) or USUAL
    if TARGETS in parts:
        parts |= JUDGED
    workloads = [each for each in WORKLOADS if each.name in parts]
    began, now = time.monotonic(), datetime.datetime.now(datetime.UTC)
    with contextlib.ExitStack() as stack:
        folder = _workshop(stack)
        if sizes is FULL:
            _start_as_users_do(folder)
        postgres = stack.enter_context(durable_postgres(folder)) if StoreName.POSTGRES in stores else None
        report: dict[str, Any] = {
            "run": now.strftime("%Y-%m-%dT%H%M%S"),
            "quick": sizes is not FULL,
            "environment": facts(folder, postgres.version if postgres else None),
            "sizes": dataclasses.asdict(sizes),
        }
        ground = Ground(folder, stack.enter_context(crew()), postgres)
        if workloads or LIMITS in parts:
            report |= Campaign(ground, sizes, _say).run(stores, workloads)
        run = Run(ground, sizes, stores, _say, choice)
        for part in PARTS:
            if part.name in parts:
                report[part.key] = part.measure(run)
                keep(report)
    return report | {"seconds": round(time.monotonic() - began)}


def _workshop(stack: contextlib.ExitStack) -> Path:
    """One folder for all stores, so that they share a file system with the limits."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
    folder.chmod(0o755)  # the account that runs PostgreSQL must be able to pass through it
    return folder


def _start_as_users_do(folder: Path) -> None:
    """Servers begin from nothing and share no memory; code is compiled, as it is where a package was installed."""
    os.environ[FORKS] = "0"
    kept = surroundings(folder)
    os.environ.clear()
    os.environ.update(kept)


def _keep(report: dict[str, Any], path: Path | None) -> Path:
    """In a file of the run's own, unless one was named."""
    path = path or RESULTS / f"{report['run']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return path


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
