"""Several runs as one report: parts that were measured one after the other, the newest of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

Row = Mapping[str, Any]
NAMING = ("store", "system", "worker", "kind", "crowd", "measure", "name", "ours", "peer", "servers")
"""Fields that say what a row is about: a newer row about the same takes the place of the older ones."""


class NothingToMerge(ValueError):
    """There are no results, or none that count."""


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Reports from files and from folders of them; of a folder, only those of full runs."""
    found: list[dict[str, Any]] = []
    for path in paths:
        if path.suffix != ".json":
            found += [each for each in map(_report, sorted(path.glob("*.json"))) if _counts(each)]
        else:
            found.append(_report(path))
    if not found:
        raise NothingToMerge(f"no results of a full run in {', '.join(map(str, paths))}")
    return found


def _counts(report: Row) -> bool:
    return not (report.get("quick") or report.get("is_merged"))


def _report(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise NothingToMerge(f"{path} is not a result of a run: {error}") from error
    return {"run": path.stem} | report


def merged(reports: Iterable[Row]) -> dict[str, Any]:
    """One report; each row says of which run it is."""
    whole: dict[str, Any] = {}
    for report in sorted(reports, key=lambda each: str(each["run"])):
        stamped = {name: _stamped(found, report["run"]) for name, found in report.items()}
        whole = _joined(whole, stamped)
    return whole


def _stamped(found: Any, run: str) -> Any:
    """Rows with the run that they are of."""
    if isinstance(found, list):
        return [{"run": run, **row} if isinstance(row, dict) else row for row in found]
    if isinstance(found, dict):
        return {name: _stamped(below, run) for name, below in found.items()}
    return found


def _joined(old: Any, new: Any) -> Any:
    if new is None or new == [] or new == {}:
        return new if old is None else old
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _joined(old.get(name), found) for name, found in new.items()}
    if _are_rows(old) and _are_rows(new):
        fresh = {_about(row) for row in new}
        return [row for row in old if _about(row) not in fresh] + new
    return new


def _are_rows(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(row, dict) for row in found)


def _about(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in NAMING)
