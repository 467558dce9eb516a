"""The settings as an operator reads them: the rows of `config show` and the reference page."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.catalogue import CATALOGUE, CHAPTERS, CLIENT_VARIABLES, SETTINGS, Group, Setting
from penstock.settings.limits.admission import OVERRIDES
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


_ADMISSION = """\
Limits hold for all servers of a cluster together. A limit that is not set does not limit; a limit of 0 closes.
What operators set while the cluster runs beats what is declared here, limit by limit, and a restart leaves it.

`DW_TASK_QUEUE_ADMISSION_OVERRIDES` says more of single queues. Of the keys `namespace:queue`, `namespace:*`,
`queue` and `*`, in this order, the first that names a limit decides; then comes the setting above.
`null` goes by that setting at once. `max_active_leases` is short for `max_active_leases_per_queue`, and
`budget_group` for `dispatch_budget_group`.

```json
{
  "production:payments": {
    "workflow_tasks": {
      "max_active_leases_per_queue": 8,
      "max_dispatches_per_minute": 120,
      "dispatch_budget_group": "downstream-openai",
      "max_dispatches_per_minute_per_budget_group": 600
    }
  },
  "production:*": {
    "activity_tasks": {"max_active_leases_per_namespace": 1200}
  }
}
```

A file says the same in tables, and more of budget groups. `[admission.queues]` and
`DW_TASK_QUEUE_ADMISSION_OVERRIDES` exclude each other.

```toml
[admission]
version = 3
window = "minute"

[admission.defaults.activity_tasks]
max_active_leases_per_queue = 100

[admission.queues."production:payments".workflow_tasks]
max_active_leases_per_queue = 8
dispatch_budget_group = "downstream-openai"

[admission.groups.downstream-openai]
max_dispatches_per_minute = 600
max_active_leases = 50
max_cost_per_minute = 90000
window = "sliding"
namespaces = "all"  # one budget for them all; or a list, with one budget each

[admission.cluster]
max_active_leases = 500
activity_tasks.max_active_leases = 400
```

Malformed JSON, unknown names, a group without a limit, or one namespace or group with two limits: each is
refused with its path. `penstock config show --queue production:payments` tells what holds for a queue, and why.
"""
_NOTES = {Group.ADMISSION: _ADMISSION}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force; `value` is None where it is not set, and `***` for a secret that is."""

    name: str
    value: str | None
    source: str
    default: str
    description: str


def describe(settings: Settings) -> list[SettingRow]:
    """One row per setting in the order of the catalogue, then one per nested limit.

    Secrets are shown as `***`.
    """
    readings = {reading.name: reading for reading in settings.readings}
    rows = [
        SettingRow(
            name=setting.name,
            value=readings[setting.name].shown,
            source=readings[setting.name].source,
            default=_default(setting),
            description=setting.description,
        )
        for setting in CATALOGUE
    ]
    return [*rows, *_declared_rows(settings)]


def _declared_rows(settings: Settings) -> list[SettingRow]:
    """The rows of limits that are nested in a setting."""
    note = f"Part of {OVERRIDES} or of a table of the file."
    entry = {each.path: each for each in settings.declared.all() if each.path not in SETTINGS}
    return [
        SettingRow(path, "null" if each.value is None else str(each.value), each.source, "not set", note)
        for path, each in entry.items()
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
        for setting in CHAPTERS[group]
    ]
    return "\n".join(
        [
            f"## {group}\n",
            "| Setting | Value | Default | Meaning |",
            "|---|---|---|---|",
            *rows,
            *(["", _NOTES[group]] if group in _NOTES else [""]),
        ]
    )


def _default(setting: Setting) -> str:
    return setting.default or setting.default_note


def _default_cell(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else _cell(setting.default_note)


def _file_note(setting: Setting) -> str:
    return f" Or `{setting.file_variant}`." if setting.file_variant else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
