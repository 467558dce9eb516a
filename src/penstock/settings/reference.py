"""The settings as an operator reads them: the rows of `config show` and the reference page."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.catalogue import CATALOGUE, CLIENT_VARIABLES, Group, Setting
from penstock.settings.policies import Settings

_INTRODUCTION = """\
# Settings

Every setting is an environment variable. The same settings may stand in a TOML file, by full name
(`DW_AUTH_DRIVER = "token"`) or short (`auth_driver = "token"`); `--config` or `DW_CONFIG` names the file. The
command line wins over the environment, and the environment over the file.

A name that is not in these tables, or a value outside its bounds, refuses to start; all problems are reported
together. `penstock config check` looks without starting, and `penstock config show` tells what is in force
and where it came from.

Each secret may also be given as a file: `DW_WORKER_TOKEN_FILE=/run/secrets/worker` reads it from there.
The file, or a TOML file with secrets in it, must be closed to group and world (`chmod 600`).
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting in force; `value` is None where it is not set, and `***` for a secret that is."""

    name: str
    value: str | None
    source: str
    default: str
    description: str


def describe(settings: Settings) -> list[Row]:
    """One row for every setting, in the order of the catalogue. Secrets are shown as `***`."""
    readings = {reading.name: reading for reading in settings.readings}
    return [
        Row(
            name=setting.name,
            value=readings[setting.name].shown,
            source=readings[setting.name].source,
            default=_default(setting),
            description=setting.description,
        )
        for setting in CATALOGUE
    ]


def reference_markdown() -> str:
    """The page `docs/reference/settings.md`; a test compares the two."""
    chapters = [_chapter(group) for group in Group]
    clients = "\n".join(f"- `{name}`: {meaning}" for name, meaning in CLIENT_VARIABLES.items())
    foreign = "- `DURABLE_WORKFLOW_*`: where a client finds its server; not read here"
    return "\n".join([_INTRODUCTION, *chapters, f"## Variables of clients\n\n{clients}\n{foreign}\n"])


def _chapter(group: Group) -> str:
    rows = [
        f"| `{setting.name}` | {_cell(setting.kind.expects)} | {_default_cell(setting)} "
        f"| {_cell(setting.description)}{_file_note(setting)} |"
        for setting in CATALOGUE
        if setting.group is group
    ]
    return "\n".join(
        [f"## {group}\n", "| Setting | Value | Default | Meaning |", "|---|---|---|---|", *rows, ""]
    )


def _default(setting: Setting) -> str:
    return setting.default or setting.default_note


def _default_cell(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else _cell(setting.default_note)


def _file_note(setting: Setting) -> str:
    return f" Or `{setting.file_variant}`." if setting.file_variant else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
