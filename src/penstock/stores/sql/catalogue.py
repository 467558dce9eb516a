"""Named SQL statements, loaded from the .sql files and rendered for one dialect.

A statement is written once for both databases, over a *set of rows* called `q`:

    -- name: renew_lease
    -- takes: token text, expires_at_ms bigint
    UPDATE tasks SET lease_expires_at_ms = q.expires_at_ms FROM {rows} WHERE tasks.lease_token = q.token

On PostgreSQL `{rows}` becomes `unnest` of array parameters, so that equal statements of many operations are sent as
one: an array per column, or one array of composite rows where there are `WIDE` columns or more. On SQLite it becomes
a single row of parameters. `q.n` numbers the rows; a statement that returns rows selects it first.

Macros:

| Macro | Becomes |
|---|---|
| `{columns}`, `{q.columns}` | what the statement takes, as a list |
| `{task}` | the columns listed under `-- columns: task`, of the table aliased `t` |
| `{some_name}` | the text under `-- fragment: some_name`; it may use fragments defined before it |
| `{lock t}` | `FOR UPDATE OF t` on PostgreSQL |
| `{rows locking lanes}` | `{rows}` after the lanes that they name were locked in key order |
| `{each :names}` | the elements of a JSON list, as rows of `each_.value` |
| `{index name}` | `INDEXED BY name` on SQLite, which prefers a primary key to a small partial index |
| `{stride q.weight_milli}` | the stride of a weight (see `core.scheduling.fairness`) |
| `{levels}` | all priority levels |
| `{level rows}` | all priority levels, as rows of `level` |

Markers:

- `-- unmerged`: never merged with equal statements; parameters are named (`:run_id`) and may be used in a LIMIT.
- `-- coalesce`: takes a count as its last column, which operations do not give: the number of equal rows.
- `-- new snapshot`: must see rows that others committed while earlier writes waited for locks; never merged behind one.

A file `noun.postgres.sql` or `noun.sqlite.sql` overrides statements by name where a dialect must differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.scheduling.fairness import ALL_LEVELS, SCALE

FILES = (
    "operations/namespaces",
    "matching/workers",
    "matching/cohorts",
    "operations/nonces",
    "schedules/schedules",
    "workflows/unique_keys",
    "workflows/runs",
    "visibility/visibility",
    "workflows/histories",
    "tasks/activities",
    "workflows/timers",
    "workflows/children",
    "messaging/updates",
    "messaging/requests",
    "messaging/messages",
    "messaging/streams",
    "messaging/outbox",
    "tasks/tasks",
    "limits/scopes",
    "limits/run_places",
    "limits/policies",
    "limits/change_sets",
    "limits/retry_budgets",
    "matching/queues",
    "tasks/query_tasks",
    "operations/journal",
    "operations/external_payloads",
    "maintenance/retention",
    "visibility/namespace_stats",
    "maintenance/next_due",
    "series/series",
    "operations/ui_sessions",
    "operations/simulations",
)
"""The .sql files. Writes are executed in this order on every server, so that locks are taken in one order."""


_LEVEL_ROWS = "SELECT 0 AS level" + "".join(
    f" UNION ALL SELECT {level}" for level in range(ALL_LEVELS[0] + 1, ALL_LEVELS[1] + 1)
)
assert ALL_LEVELS[0] == 0, "the first row has the level's name"


_LOCKING_LANES = """(SELECT q.* FROM {rows}
         JOIN lanes t ON t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key
        ORDER BY t.queue_id, t.level, t.key {lock t}) q"""


WIDE = 6
"""From this many columns on, rows are sent to PostgreSQL as one array of composites: each parameter has its cost."""


class Dialect(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


_LOCKS = re.compile(r"\s+FOR (?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?")


class Statement(Struct, frozen=True, eq=False):
    """A rendered statement. Compared by identity, because it is a dictionary key on every hot path."""

    name: str
    sql: str
    takes: tuple[tuple[str, str], ...]
    rank: int
    """Its place in the order of execution."""
    returns_rows: bool
    """Whether it returns rows; the first column of each is the number of the parameter row that it belongs to."""
    unmerged: bool
    """Whether it is sent once per operation instead of once for many."""
    locks: bool
    """Whether it locks the row that its values name."""
    needs_new_snapshot: bool = False
    """Whether it must see rows that were committed while earlier writes waited for locks."""
    needs_transaction: bool = False
    """Whether it locks or changes rows, so that it needs a transaction."""
    coalesces: bool = False
    """Whether equal rows are passed to it as one, with their number."""
    many: str | None = None
    """On SQLite, the text that fetches for many values at once, which are passed as a JSON list."""
    row_type: str | None = None
    """The composite type of its rows if they are sent as one array; None if each column is an array."""

    @property
    def parameters(self) -> int:
        """How many parameters it has."""
        return len(self.takes) if self.row_type is None else 1

    @property
    def changes_rows(self) -> bool:
        """Whether it changes rows: a reservation, or a change of many rows at once."""
        return not self.sql.startswith("SELECT")


@cache
def catalogue(dialect: Dialect) -> Mapping[str, Statement]:
    """Every statement by name, ready to be prepared."""
    statements: dict[str, Statement] = {}
    for path in FILES:
        texts = dict(_blocks(f"{path}.sql"))
        overrides = dict(_blocks(f"{path}.{dialect.value}.sql"))
        for name, block in (texts | overrides).items():
            if name in statements:
                raise ValueError(f"statement {name!r} is named twice")
            statements[name] = _render(name, block, dialect, len(statements))
    return statements


@cache
def reading_catalogue(dialect: Dialect) -> Mapping[str, Statement]:
    """The statements for reads: without row locks."""
    return {
        name: replace(each, sql=_LOCKS.sub("", each.sql), locks=False, needs_transaction=False)
        for name, each in catalogue(dialect).items()
    }


_CHANGED = re.compile(r"\b(?:UPDATE|INTO|DELETE FROM)\s+(\w+)")
_TOUCHED = re.compile(r"\b(?:UPDATE|INTO|FROM|JOIN|USING)\s+(\w+)")
_NO_TABLES = frozenset({"OF", "SET", "SKIP"})
"""Words behind UPDATE that name no table: DO UPDATE SET, FOR UPDATE OF, FOR UPDATE SKIP LOCKED."""


@lru_cache(maxsize=1024)
def changed_tables(statement: Statement) -> frozenset[str]:
    """The tables that a statement changes."""
    return frozenset(_CHANGED.findall(statement.sql)) - _NO_TABLES


@lru_cache(maxsize=1024)
def touched_tables(statement: Statement) -> frozenset[str]:
    """The tables that a statement reads or changes, and perhaps words that name no table."""
    return frozenset(_TOUCHED.findall(statement.sql))


def dialect_of(statements: Mapping[str, Statement]) -> Dialect:
    """The dialect of some statements."""
    return next(
        dialect for dialect in Dialect if statements in (catalogue(dialect), reading_catalogue(dialect))
    )


def columns(named: str) -> str:
    """The columns that a file lists under a name, of the table aliased `t`."""
    return _named_texts()[named]


@cache
def _named_texts() -> Mapping[str, str]:
    """Column lists, as a SELECT writes them, and fragments, by name."""
    texts: dict[str, str] = {}
    for path in FILES:
        text = files("penstock.stores.sql").joinpath(f"{path}.sql").read_text("utf-8")
        for found in re.finditer(
            r"^-- (columns|fragment): (\w+)\n((?:--   .+\n)+)", text, flags=re.MULTILINE
        ):
            lines = [line.removeprefix("--   ") for line in found[3].splitlines()]
            columns = re.findall(r"\w+", " ".join(lines))
            listed = ", ".join(f"t.{column}" for column in columns)
            texts[found[2]] = listed if found[1] == "columns" else _with_fragments("\n".join(lines), texts)
    return texts


def _with_fragments(sql: str, texts: Mapping[str, str]) -> str:
    """Replaces the macros of column lists and fragments."""
    for named, text in texts.items():
        sql = sql.replace("{" + named + "}", text)
    return sql


def _blocks(filename: str) -> Iterator[tuple[str, str]]:
    source = files("penstock.stores.sql").joinpath(filename)
    if not source.is_file():
        return
    parts = re.split(r"^-- name: *(\w+) *$", source.read_text("utf-8"), flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def _render(name: str, block: str, dialect: Dialect, rank: int) -> Statement:
    takes = _takes(block)
    unmerged = _has_marker(block, "unmerged")
    sql = _expanded(block, takes)
    locks = "{lock" in sql
    many, row_type = None, None
    if dialect is Dialect.SQLITE:
        sql = sql.replace("{rows locking lanes}", "{rows}")
        many = None if unmerged else _for_many(sql, takes)
        sql = _without_rows(sql, takes)
    else:
        sql = sql.replace("{rows locking lanes}", _LOCKING_LANES)
        row_type = None if unmerged else _row_type(takes)
    sql = sql.replace("{rows}", _rows(takes, dialect, row_type))
    sql = _functions(_placeholders(sql, takes, dialect), dialect)
    return Statement(
        name,
        sql,
        takes,
        rank,
        returns_rows=sql.upper().startswith("SELECT") or "RETURNING" in sql.upper(),
        unmerged=unmerged,
        locks=locks,
        needs_new_snapshot=_has_marker(block, "new snapshot"),
        needs_transaction=not sql.startswith("SELECT") or _LOCKS.search(sql) is not None,
        coalesces=_has_marker(block, "coalesce"),
        many=many,
        row_type=row_type,
    )


def _takes(block: str) -> tuple[tuple[str, str], ...]:
    found = re.search(r"^-- takes: *(.+)$", block, flags=re.MULTILINE)
    return tuple(_column(part) for part in found[1].split(",")) if found else ()


def _has_marker(block: str, marker: str) -> bool:
    return re.search(rf"^-- {marker}$", block, flags=re.MULTILINE) is not None


def _expanded(block: str, takes: tuple[tuple[str, str], ...]) -> str:
    """The text of a block without comments, with its columns and fragments filled in."""
    sql = "\n".join(line for line in block.splitlines() if line.strip() and not line.startswith("--"))
    sql = sql.strip().removesuffix(";")
    sql = sql.replace("{columns}", ", ".join(column for column, _ in takes))
    sql = sql.replace("{q.columns}", ", ".join(f"q.{column}" for column, _ in takes))
    sql = sql.replace("{values}", ", ".join(f":{column}" for column, _ in takes))
    return _with_fragments(sql, _named_texts())


def _column(text: str) -> tuple[str, str]:
    name, kind = text.split()
    return name, kind


_SINGLE_ROW = (
    (re.compile(r"^(UPDATE (?:(?!FROM).)*?)\s+FROM \{rows\}\s+(WHERE .*)$", re.DOTALL), r"\1 \2"),
    (re.compile(r"^(INSERT (?:(?!FROM).)*?)\s+FROM \{rows\}((?:\s+WHERE true.*)?)$", re.DOTALL), r"\1\2"),
    (
        re.compile(
            r"^(SELECT (?:(?!FROM).)*?FROM) \{rows\}\s+JOIN (\w+ \w+) ON ((?:(?!JOIN|WHERE|FROM).)*)$",
            re.DOTALL,
        ),
        r"\1 \2 WHERE \3",
    ),
)
"""Shapes of statements that need no row source `q` for a single row: parameters can take its place."""
_PLAIN_INSERT = re.compile(
    r"^(INSERT INTO \w+ \([^)]*\))\s+SELECT ((?:\?\d+|\d+)(?:, (?:\?\d+|\d+))*)"
    r"(?:\s+WHERE true(?: ORDER BY (?:\?\d+|\d+)(?:, (?:\?\d+|\d+))*)?)?(\s+ON CONFLICT.*)?$",
    re.DOTALL,
)
"""An insert that selects only values."""


def _without_rows(sql: str, takes: tuple[tuple[str, str], ...]) -> str:
    """A statement of one row with parameters in place of `q`; unchanged if it has none of the known shapes."""
    shape = next((each for each in _SINGLE_ROW if each[0].match(sql)), None)
    if shape is None or not all(re.search(rf"\bq\.{name}\b", sql) for name, _ in takes):
        return sql
    places = {name: f"?{place}" for place, (name, _) in enumerate(takes, 1)} | {"n": "1"}
    sql = re.sub(r"\bq\.(\w+)\b", lambda found: places[found[1]], shape[0].sub(shape[1], sql))
    return _PLAIN_INSERT.sub(r"\1 VALUES (\2)\3", sql)


def _for_many(sql: str, takes: tuple[tuple[str, str], ...]) -> str | None:
    """A SELECT by a single text, such as an id, for many at once: a third of the time for each on SQLite."""
    if len(takes) != 1 or takes[0][1] != "text" or not sql.startswith("SELECT q.n,"):
        return None
    rows = f"(SELECT each_.key + 1 AS n, each_.value AS {takes[0][0]} FROM json_each(?1) AS each_) AS q"
    return _functions(sql.replace("{rows}", rows), Dialect.SQLITE)


def _row_type(takes: tuple[tuple[str, str], ...]) -> str | None:
    """The composite type of the schema, named after the kinds of its columns, so that no version redefines it."""
    return f"row_{''.join(kind[0] for _, kind in takes)}" if len(takes) >= WIDE else None


def _rows(takes: tuple[tuple[str, str], ...], dialect: Dialect, row_type: str | None) -> str:
    if dialect is Dialect.SQLITE:
        columns = "".join(f", ?{place} AS {name}" for place, (name, _) in enumerate(takes, 1))
        return f"(SELECT 1 AS n{columns}) AS q"
    kinds = [kind for _, kind in takes] if row_type is None else [row_type]
    arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(kinds, 1))
    names = ", ".join(name for name, _ in takes)
    return f"unnest({arrays}) WITH ORDINALITY AS q({names}, n)"


def _placeholders(sql: str, takes: tuple[tuple[str, str], ...], dialect: Dialect) -> str:
    for place, (name, kind) in enumerate(takes, 1):
        mark = f"?{place}" if dialect is Dialect.SQLITE else f"${place}::{kind}"
        sql = re.sub(rf"(?<!:):{name}\b", mark, sql)
    return sql


def _functions(sql: str, dialect: Dialect) -> str:
    """Expands the macros that both dialects compute, and translates the few functions in which they differ.

    SQLite re-plans a statement for every value of a bare parameter in a LIMIT, so the parameter becomes a sum.
    """
    sql = re.sub(r"\{stride ([\w.]+)\}", rf"(({SCALE} + \1 / 2) / \1)", sql)
    sql = sql.replace("{levels}", ", ".join(str(level) for level in range(ALL_LEVELS[0], ALL_LEVELS[1] + 1)))
    sql = sql.replace("{level rows}", _LEVEL_ROWS)
    listed = "json_each(%s)" if dialect is Dialect.SQLITE else "jsonb_array_elements_text((%s)::jsonb)"
    sql = re.sub(r"\{each ([^}]+)\}", lambda found: listed % found[1] + " AS each_(value)", sql)
    if dialect is Dialect.SQLITE:
        sql = sql.replace(" AS each_(value)", " AS each_").replace("octet_length(", "length(")
        sql = re.sub(r"\{index (\w+)\}", r"INDEXED BY \1", sql)
        sql = re.sub(r"\bLIMIT (\?\d+)", r"LIMIT \1 + 0", sql)
        return re.sub(r"\{lock (\w+)\}", "", sql)
    sql = re.sub(r" *\{index \w+\}", "", sql)
    sql = re.sub(r"\{lock (\w+)\}", r"FOR UPDATE OF \1", sql)
    return sql.replace("instr(", "strpos(").replace("char(31)", "chr(31)")
