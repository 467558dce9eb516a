"""Which text each setting was given, and where: command line before environment before file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.schema.kinds import Kind
from penstock.schema.nearest import nearest
from penstock.schema.paths import KeyPath
from penstock.schema.problems import InvalidValue, quoted
from penstock.schema.toml_file import TomlFile, read_toml_file
from penstock.settings.bridge_adapters import SETTING as ADAPTERS
from penstock.settings.bridge_adapters import TABLE as ADAPTERS_TABLE
from penstock.settings.catalogue import (
    CATALOGUE,
    CLIENT_VARIABLES,
    FILE_VARIANTS,
    NAMES,
    PREFIX,
    SETTINGS,
    Setting,
)
from penstock.settings.diagnostics import Diagnostics
from penstock.settings.limits.admission import OVERRIDES, read_admission_table
from penstock.settings.limits.limit_shapes import ADMISSION, PlacedValue
from penstock.settings.types.kinds import FILE_PATH
from penstock.settings.types.secret_files import is_open_to_others

ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_BYTES_MAX = 1_048_576
_TOML_INTEGER_MAX = 2**63
_TOML_WORDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (list, "an array"),
    (dict, "a table"),
)


@dataclass(frozen=True, slots=True, repr=False)
class RawSetting:
    """The text given for a setting; it may be a secret, so there is no `repr`."""

    name: str
    text: str
    origin: str
    file_is_open_to_others: bool = False


@dataclass(slots=True, repr=False)
class RawSettings:
    """The text of each setting, the problems found, and the names without a usable text."""

    given: dict[str, RawSetting] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    invalid_names: set[str] = field(default_factory=set)
    queues: PlacedValue | None = None
    """Limits by queue, as a table of the file instead of a text."""
    groups: PlacedValue | None = None
    """Limits of budget groups, which only a file can hold."""
    adapters: PlacedValue | None = None
    """Bridge adapters, as tables of the file instead of a text."""


def gather_raw_settings(
    environ: Mapping[str, str], flags: Mapping[str, str], config_path: Path | None
) -> RawSettings:
    """The winning text of every setting, under the setting's name. Nothing is parsed yet.

    A setting and its `*_FILE` twin count as one: whichever the stronger source gives wins, and both from one
    source are refused.
    """
    raw = RawSettings()
    from_flags = _from_variables(flags, COMMAND_LINE, raw)
    from_environment = _from_variables(environ, ENVIRONMENT, raw)
    path = _find_config(from_flags, from_environment, config_path, raw)
    from_file = _from_file(path, raw) if path is not None else {}
    sources = (from_flags, from_environment, from_file)
    raw.queues = _only_source(raw, raw.queues, OVERRIDES, "limits by queue", sources)
    raw.adapters = _only_source(raw, raw.adapters, ADAPTERS, "bridge adapters", sources)
    for setting in CATALOGUE:
        if setting.name not in raw.given:
            _choose(setting, sources, raw)
    return raw


def _from_variables(variables: Mapping[str, str], origin: str, raw: RawSettings) -> dict[str, RawSetting]:
    given: dict[str, RawSetting] = {}
    for name, text in sorted(variables.items()):
        if not name.startswith(PREFIX) or name in CLIENT_VARIABLES:
            continue
        if name in SETTINGS or name in FILE_VARIANTS:
            given[name] = RawSetting(name, text, origin)
        else:
            raw.problems.append(f"{origin}: {_unknown(name, NAMES)}")
    return given


def _unknown(name: str, candidates: Iterable[str]) -> str:
    meant = nearest(name, candidates)
    close = " or ".join(f'"{each}"' for each in meant)
    advice = f"did you mean {close}?" if meant else "`penstock config show` lists all settings"
    return f"unknown setting {quoted(name)}: {advice}"


def _find_config(
    from_flags: dict[str, RawSetting],
    from_environment: dict[str, RawSetting],
    config_path: Path | None,
    raw: RawSettings,
) -> Path | None:
    if config_path is not None:
        raw.given["DW_CONFIG"] = RawSetting("DW_CONFIG", str(config_path), COMMAND_LINE)
        return config_path
    given = from_flags.get("DW_CONFIG") or from_environment.get("DW_CONFIG")
    if given is None or not given.text.isprintable() or not given.text:
        return None  # the reader refuses an empty or unprintable path like any other bad text
    return Path(given.text)


def _from_file(path: Path, raw: RawSettings) -> dict[str, RawSetting]:
    try:
        file = read_toml_file(path, _BYTES_MAX)
    except InvalidValue as error:
        raw.problems.append(f"{_shown_file(path)}: the configuration file {error.message}")
        return {}
    given: dict[str, RawSetting] = {}
    is_open = is_open_to_others(file.status)
    for entry in _entries(path, file, raw):
        if (name := entry.name) is None:
            raw.problems.append(f"{entry.origin}: {_misplaced(entry.key)}")
        elif name in given:
            raw.problems.append(
                f"{entry.origin}: {name} is given twice, as {given[name].name} and as {entry.key}"
            )
            raw.invalid_names.add(name)
        else:
            _take(name, entry, is_open, raw, given)
    return {name: _renamed(each, name) for name, each in given.items()}


@dataclass(frozen=True, slots=True, repr=False)
class _Entry:
    """A value of the file: under which key, for which setting (None: for none), and where."""

    key: str
    name: str | None
    value: object
    origin: str


def _entries(path: Path, file: TomlFile, raw: RawSettings) -> Iterator[_Entry]:
    def origin_of(steps: KeyPath) -> str:
        line = file.line_of(steps)
        return _shown_file(path) if line is None else f"{_shown_file(path)} line {line}"

    for key, value in file.document.items():
        if key == ADMISSION:
            yield from _admission_entries(PlacedValue(value, (ADMISSION,), origin_of), raw)
        elif key == ADAPTERS_TABLE and isinstance(value, dict):
            raw.adapters = PlacedValue(value, (key,), origin_of)
        else:
            yield _Entry(key, _name_of(key), value, origin_of((key,)))


def _shown_file(path: Path) -> str:
    """The path for messages: as it is if printable, else quoted and escaped."""
    text = str(path)
    return text if text.isprintable() and len(text) <= 200 else quoted(text)


def _admission_entries(given: PlacedValue, raw: RawSettings) -> Iterator[_Entry]:
    diagnostics = Diagnostics()
    table = read_admission_table(given, diagnostics)
    raw.problems += diagnostics.problems
    raw.queues, raw.groups = table.queues, table.groups
    for name, each in table.settings:
        yield _Entry(each.shown, name, each.value, f"{each.origin} ({each.shown})")


def _only_source(
    raw: RawSettings,
    table: PlacedValue | None,
    setting: str,
    holds: str,
    sources: Iterable[dict[str, RawSetting]],
) -> PlacedValue | None:
    """The table of the file, unless a setting gives the same: neither would win entry by entry, so both are refused."""
    texts = [source[setting] for source in sources if setting in source]
    if table is None or not texts:
        return table
    raw.problems.append(
        f"{table.origin}: [{table.shown}] and {setting} ({texts[0].origin}) both give {holds},"
        " and which holds is unclear: remove one of them"
    )
    raw.invalid_names.add(setting)
    return None


def _name_of(key: str) -> str | None:
    """The setting that a key of the file names, by its full name or its alias."""
    name = key if key.startswith(PREFIX) else PREFIX + key.upper()
    is_alias = key == key.lower()
    known = name in FILE_VARIANTS or (name in SETTINGS and SETTINGS[name].in_file)
    return name if known and (is_alias or key.startswith(PREFIX)) else None


def _misplaced(key: str) -> str:
    if key in CLIENT_VARIABLES:
        return f"{key} is {CLIENT_VARIABLES[key]}, and has no place in this file"
    if key in SETTINGS or PREFIX + key.upper() in SETTINGS:
        return f"{quoted(key)} cannot be set in the file: use the environment or the command line"
    if key.startswith(PREFIX):
        return _unknown(key, NAMES)
    return _unknown(key, (*NAMES, *(name.removeprefix(PREFIX).lower() for name in NAMES)))


def _take(name: str, entry: _Entry, is_open: bool, raw: RawSettings, given: dict[str, RawSetting]) -> None:
    kind: Kind = SETTINGS[name].kind if name in SETTINGS else FILE_PATH
    try:
        text = _as_text(kind, entry.value)
    except InvalidValue as error:
        raw.problems.append(f"{entry.origin}: {name} {error.message}")
        raw.invalid_names.add(name if name in SETTINGS else FILE_VARIANTS[name].name)
        return
    given[name] = RawSetting(entry.key, text, entry.origin, is_open)


def _renamed(given: RawSetting, name: str) -> RawSetting:
    return RawSetting(name, given.text, given.origin, given.file_is_open_to_others)


def _as_text(kind: Kind, value: object) -> str:
    """The equivalent text for the environment. Ambiguous types are refused."""
    allowed = kind.toml_types
    if type(value) not in allowed:
        raise InvalidValue(f"must be {kind.expects}, not {_toml_word(value)}")
    match value:
        case bool():
            return "true" if value else "false"
        case int() if abs(value) < _TOML_INTEGER_MAX:
            return str(value)
        case int():
            raise InvalidValue(f"must be {kind.expects}, not a number beyond 64 bits")
        case list() if not all(isinstance(item, str) and item and "," not in item for item in value):
            raise InvalidValue(f"must be {kind.expects}, not an array with other things in it")
        case list():
            return ",".join(value)
        case _:
            return str(value)


def _toml_word(value: object) -> str:
    return next((word for kind, word in _TOML_WORDS if isinstance(value, kind)), "a date or time")


def _choose(setting: Setting, sources: Iterable[dict[str, RawSetting]], raw: RawSettings) -> None:
    family = [name for name in (setting.name, setting.file_variant) if name is not None]
    for source in sources:
        found = [source[name] for name in family if name in source]
        if len(found) > 1:
            raw.problems.append(
                f"{found[0].origin}: {family[0]} and {family[1]} are both given: keep one of them"
            )
            raw.invalid_names.add(setting.name)
        elif found:
            raw.given[setting.name] = found[0]
        if found:
            return
