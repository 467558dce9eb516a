"""Named statements, read from the `.sql` files beside the nouns, in the words of one dialect.

A statement is written once, over a *set of rows* called `q`:

    -- name: renew_lease
    -- takes: token text, expires_at_ms bigint
    UPDATE tasks SET lease_expires_at_ms = q.expires_at_ms FROM {rows} WHERE tasks.lease_token = q.token

`{rows}` becomes one row of parameters on SQLite, and `unnest` of arrays on PostgreSQL, so that there many equal
statements of many operations travel as one: an array for each column, or one of rows where there are many columns.
`q.n` numbers the rows; a statement that answers selects it first.
`{columns}` and `{q.columns}` list what it takes. `{lock t}` becomes `FOR UPDATE OF t` where rows are locked.
`{task}` lists the columns that a file names under `-- columns: task`, of the table that is called `t` there.
`{each :names}` gives a JSON list as rows of `each_.value`.
`{rows locking lanes}` is `{rows}` after the lanes that they name were locked in one order.
`{stride q.weight_milli}` is what a dispatch costs a weight, and `{levels}` lists all levels.
`{some_words}` repeats what a file says under `-- words: some_words`; words may repeat others that came before.
`{index name}` after a table names the index to use where the planner must be told (SQLite, which would rather
walk a primary key than a small partial index).
A statement marked `-- alone` is never merged: it names its parameters (`:run_id`) and may use them in a LIMIT.
A statement marked `-- tally` takes a number last that operations do not give: how many equal rows there are.
A statement marked `-- looks` must see what others committed while the writes before it waited: it begins anew.
A file `noun.postgres.sql` or `noun.sqlite.sql` overrides by name where a dialect must differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.scheduling.fairness import ALL_LEVELS, SCALE

NOUNS = (
    "operations/namespaces",
    "matching/workers",
    "matching/cohorts",
    "operations/nonces",
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
    "limits/policies",
    "limits/retry_budgets",
    "matching/queues",
    "tasks/query_tasks",
    "operations/journal",
    "maintenance/retention",
    "visibility/namespace_stats",
    "maintenance/next_due",
)
"""In this order writes are flushed, on every node: locks are taken in one order."""


_LOCKING_LANES = """(SELECT q.* FROM {rows}
         JOIN lanes t ON t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key
        ORDER BY t.queue_id, t.level, t.key {lock t}) q"""


WIDE = 6
"""Rows of so many columns travel as rows on PostgreSQL: it takes lists of columns apart one by one, each at a price."""


class Dialect(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


_LOCKS = re.compile(r"\s+FOR (?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?")


class Statement(Struct, frozen=True, eq=False):
    """One text; equal to itself alone, for it is looked up often."""

    name: str
    sql: str
    takes: tuple[tuple[str, str], ...]
    rank: int
    """Its place in the flush order."""
    answers: bool
    """Whether it gives rows back; the first column of each is the number of the row it answers."""
    alone: bool
    """Whether it is sent once per operation instead of once for many."""
    locks: bool
    """Whether it locks the row that its values name."""
    looks: bool = False
    """Whether it goes by what rows say that it does not hold yet."""
    holds: bool = False
    """Whether it locks or changes rows when asked, so that it needs a transaction."""
    coalesces: bool = False
    """Whether equal rows are given to it as one, with their number."""
    many: str | None = None
    """The text that answers many equal questions on SQLite, which is given their values as a JSON list."""
    row_type: str | None = None
    """The type of its rows where they travel as one list of rows, else each column is a list of its own."""

    @property
    def parameters(self) -> int:
        """How many lists or values it is given."""
        return len(self.takes) if self.row_type is None else 1

    @property
    def acts(self) -> bool:
        """Whether it changes something when asked: a reservation, or a change of many rows at once."""
        return not self.sql.startswith("SELECT")


@cache
def catalogue(dialect: Dialect) -> Mapping[str, Statement]:
    """Every statement by name, ready to be prepared."""
    statements: dict[str, Statement] = {}
    for noun in NOUNS:
        texts = dict(_blocks(f"{noun}.sql"))
        overrides = dict(_blocks(f"{noun}.{dialect.value}.sql"))
        for name, block in (texts | overrides).items():
            if name in statements:
                raise ValueError(f"statement {name!r} is named twice")
            statements[name] = _render(name, block, dialect, len(statements))
    return statements


@cache
def reading_catalogue(dialect: Dialect) -> Mapping[str, Statement]:
    """The statements as an operation asks them that only reads: it locks nothing and waits for nobody."""
    return {
        name: replace(each, sql=_LOCKS.sub("", each.sql), locks=False, holds=False)
        for name, each in catalogue(dialect).items()
    }


def dialect_of(statements: Mapping[str, Statement]) -> Dialect:
    """Whose words some statements are in."""
    return next(
        dialect for dialect in Dialect if statements in (catalogue(dialect), reading_catalogue(dialect))
    )


def columns(named: str) -> str:
    """The columns that a file lists under a name, of the table that is called `t`."""
    return _named_texts()[named]


@cache
def _named_texts() -> Mapping[str, str]:
    """The lists of columns and the words that files name: columns as a SELECT writes them, words as they are."""
    texts: dict[str, str] = {}
    for noun in NOUNS:
        text = files("penstock.stores.sql").joinpath(f"{noun}.sql").read_text("utf-8")
        for found in re.finditer(r"^-- (columns|words): (\w+)\n((?:--   .+\n)+)", text, flags=re.MULTILINE):
            lines = [line.removeprefix("--   ") for line in found[3].splitlines()]
            columns = re.findall(r"\w+", " ".join(lines))
            listed = ", ".join(f"t.{column}" for column in columns)
            texts[found[2]] = listed if found[1] == "columns" else _with_words("\n".join(lines), texts)
    return texts


def _with_words(sql: str, texts: Mapping[str, str]) -> str:
    """A text in which the names of columns and words stand for what they name."""
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
    found = re.search(r"^-- takes: *(.+)$", block, flags=re.MULTILINE)
    takes = tuple(_column(part) for part in found[1].split(",")) if found else ()
    alone = re.search(r"^-- alone$", block, flags=re.MULTILINE) is not None
    looks = re.search(r"^-- looks$", block, flags=re.MULTILINE) is not None
    coalesces = re.search(r"^-- tally$", block, flags=re.MULTILINE) is not None
    sql = "\n".join(line for line in block.splitlines() if line.strip() and not line.startswith("--"))
    sql = sql.strip().removesuffix(";")
    sql = sql.replace("{columns}", ", ".join(column for column, _ in takes))
    sql = sql.replace("{q.columns}", ", ".join(f"q.{column}" for column, _ in takes))
    sql = sql.replace("{values}", ", ".join(f":{column}" for column, _ in takes))
    sql = _with_words(sql, _named_texts())
    locks = "{lock" in sql
    sql = sql.replace("{rows locking lanes}", _LOCKING_LANES if dialect is Dialect.POSTGRES else "{rows}")
    many = None
    if dialect is Dialect.SQLITE:
        many = None if alone else _for_many(sql, takes)
        sql = _without_rows(sql, takes)
    row_type = None if alone or dialect is Dialect.SQLITE else _row_type(takes)
    sql = sql.replace("{rows}", _rows(takes, dialect, row_type))
    sql = _placeholders(sql, takes, dialect)
    sql = _functions(sql, dialect)
    answers = sql.upper().startswith("SELECT") or "RETURNING" in sql.upper()
    holds = not sql.startswith("SELECT") or _LOCKS.search(sql) is not None
    return Statement(name, sql, takes, rank, answers, alone, locks, looks, holds, coalesces, many, row_type)


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
"""Shapes of statements that need no row `q` where there is but one: their values can stand in its place."""
_PLAIN_INSERT = re.compile(
    r"^(INSERT INTO \w+ \([^)]*\))\s+SELECT ((?:\?\d+|\d+)(?:, (?:\?\d+|\d+))*)"
    r"(?:\s+WHERE true(?: ORDER BY (?:\?\d+|\d+)(?:, (?:\?\d+|\d+))*)?)?(\s+ON CONFLICT.*)?$",
    re.DOTALL,
)
"""An insert that selects nothing but values."""


def _without_rows(sql: str, takes: tuple[tuple[str, str], ...]) -> str:
    """A statement of one row whose values stand where it would read them from `q`; others stay as they are."""
    shape = next((each for each in _SINGLE_ROW if each[0].match(sql)), None)
    if shape is None or not all(re.search(rf"\bq\.{name}\b", sql) for name, _ in takes):
        return sql
    places = {name: f"?{place}" for place, (name, _) in enumerate(takes, 1)} | {"n": "1"}
    sql = re.sub(r"\bq\.(\w+)\b", lambda found: places[found[1]], shape[0].sub(shape[1], sql))
    return _PLAIN_INSERT.sub(r"\1 VALUES (\2)\3", sql)


def _for_many(sql: str, takes: tuple[tuple[str, str], ...]) -> str | None:
    """A question by a text alone, such as an id, asked for many at once: SQLite takes a third of the time for each."""
    if len(takes) != 1 or takes[0][1] != "text" or not sql.startswith("SELECT q.n,"):
        return None
    rows = f"(SELECT each_.key + 1 AS n, each_.value AS {takes[0][0]} FROM json_each(?1) AS each_) AS q"
    return _functions(sql.replace("{rows}", rows), Dialect.SQLITE)


def _row_type(takes: tuple[tuple[str, str], ...]) -> str | None:
    """A type of the schema that is named by the kinds of its columns, so that it says the same to every version."""
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
    """What both dialects calculate, and the few words in which they differ.

    SQLite plans a statement anew for every value of a bare parameter in a LIMIT; it has but one plan for a sum.
    """
    sql = re.sub(r"\{stride ([\w.]+)\}", rf"(({SCALE} + \1 / 2) / \1)", sql)
    sql = sql.replace("{levels}", ", ".join(str(level) for level in range(ALL_LEVELS[0], ALL_LEVELS[1] + 1)))
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
