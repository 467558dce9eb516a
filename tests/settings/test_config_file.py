"""The same settings in a TOML file, weaker than the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.schema.nearest import nearest
from penstock.settings import AuthDriver, Settings, describe, load
from penstock.settings.catalogue import CATALOGUE

TOKEN = "Xq3vN8tB1kLw6zRy5mHc2pDf9sGj4aUe"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.touch(mode=0o600)
    return path


def read(config: Path, text: str, **environ: str) -> Settings:
    config.write_text(text, encoding="utf-8")
    return load(environ, config)


def problems_of(config: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        read(config, text, **environ)
    return [problem.replace(str(config), "FILE") for problem in refused.value.details["problems"]]


def test_full_names_and_short_names_mean_the_same(config: Path):
    full = read(config, 'DW_AUTH_DRIVER = "none"\nDW_PORT = 9000\nDW_COMPRESSION_ENABLED = false\n')
    short = read(config, 'auth_driver = "none"\nport = "9000"\ncompression_enabled = "off"\n')
    for settings in (full, short):
        assert settings.auth.driver is AuthDriver.NONE
        assert settings.listen.port == 9000
        assert not settings.listen.compression_enabled


def test_the_environment_wins_over_the_file(config: Path):
    settings = read(config, "port = 9000\nmax_long_polls = 5\n", DW_PORT="9001")
    assert settings.listen.port == 9001
    assert settings.polls.long_polls_max == 5


def test_the_environment_may_name_the_file_and_the_argument_wins(config: Path, tmp_path: Path):
    config.write_text("port = 9000\n")
    assert load({"DW_CONFIG": str(config)}).listen.port == 9000
    assert load({"DW_CONFIG": str(tmp_path / "missing.toml")}, config).listen.port == 9000


def test_lists_may_be_arrays_or_comma_separated(config: Path):
    array = read(config, 'allowed_hosts = ["a.example", "b.example"]\ntrusted_proxies = ["10.0.0.0/8"]')
    text = read(config, 'allowed_hosts = "a.example, b.example"\ntrusted_proxies = "10.0.0.0/8"')
    assert array.listen == text.listen


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("port = 1.5", "a float"),
        ("port = nan", "a float"),
        ("port = -inf", "a float"),
        ("port = true", "a boolean"),
        ("port = -1", '"-1"'),
        ("port = 99999999999999999999999", "64 bits"),
        ("port = 0x" + "f" * 5000, "64 bits"),
        ("port = [1]", "an array"),
        ("port = 1979-05-27", "a date or time"),
        ("host = 1", "an integer"),
        ("auth_driver = { name = 'token' }", "a table"),
        ("worker_token = 12345", "an integer"),
        ("worker_token_file = 1", "an integer"),
        ("allowed_hosts = [1]", "other things"),
        ("allowed_hosts = ['a,b']", "other things"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_line(config: Path, line: str, word: str):
    (problem,) = problems_of(config, f"# first\n\n{line}\n")
    assert problem.startswith("FILE line 3: ")
    assert word in problem


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("port = \n", "line 1, column 8"),
        ("port = 1\nport = 2\n", "line 2"),
        ("a = 'x\n", "line 2, column 1"),
        ('host = "ok"\n}\n', "line 2, column 1"),
        ("\x00", "line 1, column 1"),
    ],
)
def test_what_is_not_toml_is_refused_with_line_and_column(config: Path, text: str, place: str):
    (problem,) = problems_of(config, text)
    assert "is not valid TOML" in problem
    assert place in problem
    assert problem.isprintable()


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000])
def test_a_toml_bomb_is_refused(config: Path, text: str):
    (problem,) = problems_of(config, text)
    assert problem.startswith("FILE")


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(config: Path):
    config.write_bytes(b"port = 1\nhost = '\xff'\n")
    with pytest.raises(ConfigurationError, match="line 2: not UTF-8"):
        load({}, config)


def test_a_file_with_a_byte_order_mark_is_read(config: Path):
    config.write_bytes(b"\xef\xbb\xbfport = 9000\n")
    assert load({}, config).listen.port == 9000


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ConfigurationError, match="configuration file cannot be read"):
        load({}, tmp_path / name)


def test_a_file_beyond_all_reason_is_refused(config: Path):
    (problem,) = problems_of(config, "#" * 2_000_000)
    assert "larger than" in problem


def test_unknown_keys_are_refused_with_the_nearest_in_the_same_spelling(config: Path):
    problems = problems_of(config, "auth_drivr = 'token'\nDW_PROT = 1\nPort = 2\n\n[limits]\npayload = 1\n")
    assert problems[0] == 'FILE line 1: unknown setting "auth_drivr": did you mean "auth_driver"?'
    assert problems[1] == 'FILE line 2: unknown setting "DW_PROT": did you mean "DW_PORT"?'
    assert problems[2].startswith('FILE line 3: "Port"')
    assert problems[3].startswith('FILE line 5: unknown setting "limits"')
    assert len(problems) == 4


def test_a_setting_given_twice_under_both_names_is_refused(config: Path):
    (problem,) = problems_of(config, "port = 1\nDW_PORT = 2\n")
    assert problem == "FILE line 2: DW_PORT is given twice, as port and as DW_PORT"


def test_what_belongs_elsewhere_has_no_place_in_the_file(config: Path):
    problems = problems_of(config, 'DW_ENV = "prod"\nDW_CONFIG = "other.toml"\nconfig = "x"\n')
    assert "DW_ENV" in problems[0]
    assert all("the environment or the command line" in problem for problem in problems[1:])


def test_a_secret_in_a_file_that_others_may_read_is_refused(config: Path):
    config.chmod(0o644)
    (problem,) = problems_of(config, f'worker_token = "{TOKEN}"\n')
    assert "chmod 600" in problem
    (problem,) = problems_of(config, 'database_url = "postgresql://u:hunter2@db/app"\n')
    assert "chmod 600" in problem
    assert "hunter2" not in problem


def test_a_file_without_secrets_may_be_open_to_all(config: Path):
    config.chmod(0o644)
    assert read(config, 'port = 9000\ndatabase_url = "postgresql://u@db/app"\n').listen.port == 9000


def test_a_secret_in_a_private_file_is_taken(config: Path):
    settings = read(config, f'worker_token = "{TOKEN}"\n')
    assert settings.auth.tokens.worker is not None
    assert settings.auth.tokens.worker.reveal() == TOKEN


def test_each_row_tells_which_line_it_came_from(config: Path):
    rows = {row.name: row for row in describe(read(config, "\nport = 9000\n", DW_LOG_LEVEL="debug"))}
    assert rows["DW_PORT"].source == f"{config} line 2"
    assert rows["DW_LOG_LEVEL"].source == "environment"
    assert rows["DW_HOST"].source == "default"
    assert (rows["DW_CONFIG"].value, rows["DW_CONFIG"].source) == (str(config), "command line")


@given(st.sampled_from([setting.alias for setting in CATALOGUE if len(setting.alias) > 6]), st.data())
def test_one_slip_of_the_keyboard_still_finds_the_setting(alias: str, data: st.DataObject):
    at = data.draw(st.integers(0, len(alias) - 1))
    slip = alias[:at] + alias[at + 1 :]
    found = nearest(slip, [setting.alias for setting in CATALOGUE])
    assert alias in found
