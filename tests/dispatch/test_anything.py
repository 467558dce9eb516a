"""Whatever a file holds, it loads or is refused with problems: nothing else comes out."""

from __future__ import annotations

from typing import Any

import tomli
from hypothesis import event, given
from hypothesis import strategies as st

from penstock.dispatch import DispatchConfigError, Problem, dispatch_from, load_dispatch
from penstock.dispatch.file.shape import ROOT
from penstock.dispatch.inspection.effective import rows
from penstock.dispatch.inspection.explanation import explain
from penstock.schema.kinds import Duration, Flag, Number, TextList, Whole
from penstock.schema.shapes import ListOf, Table, TableOf
from penstock.schema.toml_lines import lines_of
from tests.dispatch.tables import PIPELINES

_words = st.sampled_from(
    ["a", "b", "anth", "unset", "unlimited", "explicit", "balanced", "gpu", "", "a.b c", "é"]
)
_values = st.one_of(
    _words,
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.sampled_from(["0:10:00", "PT1H", "90s", "-1s", "10:00", "9999999999:00:00"]),
    st.lists(_words, max_size=3),
    st.just({}),
)


_LONG = ["0:10:00", "PT1H", "90s", 5, 0.5]
_FIT: dict[type, st.SearchStrategy[Any]] = {
    Duration: st.sampled_from(_LONG),
    Whole: st.integers(1, 5),
    Number: st.sampled_from([1, 2.5]),
    Flag: st.booleans(),
    TextList: st.lists(_words.filter(bool), max_size=3),
}


def _trees(shape: object, with_junk: bool) -> st.SearchStrategy[Any]:
    """Trees of the right shape; with junk, any value may stand anywhere."""
    if isinstance(shape, Table):
        keys = {key.name: _trees(key.holds, with_junk) for key in shape.keys}
        if with_junk:
            keys = {name: st.one_of(held, held, _values) for name, held in keys.items()} | {"odd": _values}
        needed = {key.name: keys.pop(key.name) for key in shape.keys if key.is_required and not with_junk}
        return st.fixed_dictionaries(needed, optional=keys)
    if isinstance(shape, TableOf):
        return st.dictionaries(_words.filter(bool), _trees(shape.holds, with_junk), max_size=3)
    if isinstance(shape, ListOf):
        return st.lists(_trees(shape.holds, with_junk), max_size=2)
    return _values if with_junk else _FIT.get(type(shape), st.sampled_from(["explicit", "gpu", "anth"]))


@given(tree=st.one_of(_trees(ROOT, False), _trees(ROOT, True)))
def test_any_tree_loads_and_resolves_or_is_refused_with_its_problems(tree: dict[str, Any]) -> None:
    problems: list[Problem] = []
    try:
        config = dispatch_from(tree)
    except DispatchConfigError as refused:
        problems = refused.problems
    event("refused" if problems else "loaded")
    if problems:
        assert all(problem.path and problem.message for problem in problems)
        return
    for activity in (*config.worker_config.activity_queues, "other"):
        for key in (None, "a", "anth"):
            assert explain(config, activity, key).options == config.resolve(activity, key)
    assert rows(config)


def _inline(table: dict[str, str]) -> str:
    return "{\n" + ",\n".join(f"{name} = {value} # it's {{" + "\n" for name, value in table.items()) + "}"


_CLEAN = st.recursive(
    st.one_of(
        st.integers(0, 9).map(str), st.just('"x # } ]"'), st.just("'''\n=[{\n'''"), st.just("[1, [2],\n 3]")
    ),
    lambda inner: st.dictionaries(st.sampled_from(["a", '"b.c"', "d.e", "f"]), inner, max_size=3).map(
        _inline
    ),
    max_leaves=8,
)


@given(tables=st.lists(st.tuples(st.sampled_from(["[t]", "[t.u]", "[[v]]"]), _CLEAN), max_size=3))
def test_the_line_of_every_value_is_found(tables: list[tuple[str, str]]) -> None:
    text = "".join(f"# {{\n{header}\nk{number} = {value}\n" for number, (header, value) in enumerate(tables))
    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    lines = lines_of(text)
    assert set(_paths(document, ())) <= set(lines)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("k"):
            assert any(found == number and path[-1] == line.split(" ")[0] for path, found in lines.items())


def _paths(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for name, inner in value.items():
            found += _paths(inner, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            found += _paths(inner, (*path, place))
    return found


def test_the_published_file_has_a_line_for_every_value() -> None:
    text = PIPELINES.read_text()
    assert set(_paths(tomli.loads(text), ())) <= set(lines_of(text))
    assert load_dispatch(PIPELINES, environ={}).origins
