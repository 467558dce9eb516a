"""Files with thousands of routes load, and what is odd about one does not take longer than the file."""

from __future__ import annotations

from pathlib import Path

from penstock.dispatch import load_dispatch
from penstock.schema.nearest import HINTS_MAX

ROUTES = 3_000


def test_every_value_of_a_large_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    routes = "\n".join(
        f'[penstock.worker_config.activity_queues.act_{number}]\ndefault = "queue-{number}"'
        for number in range(ROUTES)
    )
    options = "\n".join(f"[penstock.queue_options.queue-{number}]" for number in range(ROUTES))
    file.write_text(f"{routes}\n{options}\n")
    config = load_dispatch(file)
    last = ("worker_config", "activity_queues", f"act_{ROUTES - 1}", "default")
    assert config.origins[last].endswith(f":{2 * ROUTES}")
    assert not config.warnings


def test_where_most_names_are_unknown_only_the_first_have_suggestions(tmp_path: Path) -> None:
    file = tmp_path / "misspelt.toml"
    file.write_text(
        "\n".join(
            f'[penstock.worker_config.activity_queues.act_{number}]\ndefault = "queeu-{number:05}"\n'
            f"[penstock.queue_options.queue-{number:05}]"
            for number in range(ROUTES // 10)
        )
    )
    warnings = load_dispatch(file).warnings
    assert len(warnings) == 2 * ROUTES // 10
    assert sum(bool(warning.hint) for warning in warnings) == HINTS_MAX
