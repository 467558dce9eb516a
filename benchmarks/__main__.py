"""`python -m benchmarks`: measure, print a table, keep the JSON."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.accuracy import Accuracy
from benchmarks.admission import Admission
from benchmarks.crew import crew
from benchmarks.databases import durable_postgres
from benchmarks.dispatch_rates import DispatchRates
from benchmarks.environment import facts
from benchmarks.peer_measures import Workload
from benchmarks.report import show
from benchmarks.resolving import resolving
from benchmarks.scaling import Scaling
from benchmarks.sdk import Sdk
from benchmarks.side_by_side import SYSTEMS, SideBySide
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.workers import Workers
from benchmarks.workflows import Workflows
from benchmarks.workloads import WORKLOADS, Campaign

SCALING, LIMITS, DISPATCH_RATES, ACCURACY = "scaling", "limits", "dispatch-rates", "accuracy"
ADMISSION, WORKFLOWS, SDK, WORKERS, RESOLVING = "admission", "workflows", "sdk", "workers", "resolving"
PEERS = "peers"
PARTS = (LIMITS, SCALING, DISPATCH_RATES, ADMISSION, WORKFLOWS, ACCURACY, SDK, WORKERS, RESOLVING, PEERS)
NAMES = (*StoreName, *(each.name for each in WORKLOADS), *PARTS)
LATEST = Path(__file__).parent / "results" / "latest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    report = measure(QUICK if options.quick else FULL, frozenset(options.only or NAMES), options)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    show(report, Console(width=None if sys.stdout.isatty() else 160))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke of some seconds; its figures mean nothing"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"a store or a part, may be repeated: {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--system",
        action="append",
        choices=SYSTEMS,
        metavar="NAME",
        help=f"of the part peers, only this one; may be repeated: {'; '.join(SYSTEMS)}",
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=[*Workload],
        metavar="NAME",
        help=f"of the part peers, only this one; may be repeated: {', '.join(Workload)}",
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help="of the part peers, and how often: 3")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="where the JSON goes")
    return parser


def measure(sizes: Sizes, only: frozenset[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure what `only` names; stores alone mean every part on them, parts alone mean both stores."""
    stores = [store for store in StoreName if store in only] or list(StoreName)
    parts = only - set(StoreName) or frozenset(NAMES)
    workloads = [each for each in WORKLOADS if each.name in parts]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = _workshop(stack)
        postgres = stack.enter_context(durable_postgres(folder)) if StoreName.POSTGRES in stores else None
        report: dict[str, Any] = {
            "environment": facts(folder, postgres.version if postgres else None),
            "sizes": dataclasses.asdict(sizes),
            "limits": [],
            "workloads": [],
            "scaling": [],
            "dispatch_rates": None,
            "admission": None,
            "workflows": None,
            "accuracy": [],
            "sdk": None,
            "workers": None,
            "resolving": [],
            "peers": None,
        }
        ground = Ground(folder, stack.enter_context(crew()), postgres)
        if workloads or LIMITS in parts:
            report |= Campaign(ground, sizes, _say).run(stores, workloads)
        if SCALING in parts:
            report["scaling"] = Scaling(ground, sizes, _say).run(stores)
        if DISPATCH_RATES in parts:
            report["dispatch_rates"] = DispatchRates(ground, sizes, _say).run(stores)
        if ADMISSION in parts:
            report["admission"] = Admission(ground, sizes, _say).run(stores)
        if WORKFLOWS in parts:
            report["workflows"] = Workflows(ground, sizes, _say).run(stores)
        if ACCURACY in parts:
            report["accuracy"] = Accuracy(ground, sizes, _say, install=sizes is FULL).run(stores)
        if SDK in parts:
            chosen = stores if sizes is FULL else stores[:1]
            report["sdk"] = Sdk(ground, sizes, _say, peers=sizes is FULL).run(chosen)
        if WORKERS in parts:
            chosen = stores if sizes is FULL else stores[:1]
            report["workers"] = Workers(ground, sizes, _say, peers=sizes is FULL).run(chosen)
        if RESOLVING in parts:
            report["resolving"] = resolving(_say)
        if PEERS in parts:
            report["peers"] = SideBySide(
                ground,
                _say,
                quick=sizes is not FULL,
                repetitions=options.repetitions or sizes.repetitions,
                systems=options.system or SYSTEMS,
                workloads=options.workload or [*Workload],
            ).run(stores)
    return report | {"seconds": round(time.monotonic() - began)}


def _workshop(stack: contextlib.ExitStack) -> Path:
    """One folder for all stores, so that they share a file system with the limits."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
    folder.chmod(0o755)  # the account that runs PostgreSQL must be able to pass through it
    return folder


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
