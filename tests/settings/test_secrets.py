"""Secrets are read, compared, and never shown."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import traceback
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.settings import Secret, describe, load
from penstock.settings.catalogue import FILE_VARIANTS

CANARY = "canary-3vN8tB1kLw6zRy5mHc2pDf9sGj4aUeXq"


def problems_of(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        load(environ)
    problems: list[str] = refused.value.details["problems"]
    return problems


def secret_file(tmp_path: Path, content: bytes, mode: int = 0o600) -> str:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@given(st.text(alphabet="QJXZ", min_size=4))
def test_no_way_of_printing_a_secret_shows_it(text: str):
    secret = Secret(text)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>12}",
        f"{secret!r}",
        "-".join(map(str, [secret])),
        repr([secret]),
    ]
    assert all(text not in way for way in shown)
    assert all("***" in way for way in shown)


def test_encoders_and_copies_do_not_walk_into_a_secret():
    secret = Secret(CANARY)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert copy.deepcopy(secret) is secret
    assert copy.copy(secret) is secret
    assert CANARY not in repr(dataclasses.asdict(load({"DW_WORKER_TOKEN": CANARY})))


def test_secrets_compare_by_their_text():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("ключ").matches("ключ")
    assert not Secret("a").matches("\ud800")


def test_settings_and_their_description_show_no_secret():
    settings = load({name.removesuffix("_FILE"): f"{CANARY}{i}" for i, name in enumerate(FILE_VARIANTS)})
    assert CANARY not in repr(settings)
    rows = describe(settings)
    assert CANARY not in repr(rows)
    shown = {row.name: row.value for row in rows}
    assert {shown[name.removesuffix("_FILE")] for name in FILE_VARIANTS} == {"***"}
    assert all(CANARY not in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    "environ",
    [
        {"DW_WORKER_TOKEN": CANARY + " with spaces"},
        {"DW_WORKER_TOKEN": CANARY + "\udc80"},
        {"DW_SIGNATURE_KEY": CANARY + "\n"},
        {"DW_WORKER_TOKN": CANARY},
        {"DW_WORKER_TOKEN": CANARY, "DW_ADMIN_TOKEN": CANARY},
        {"DW_WORKER_TOKEN": CANARY[:20], "DW_HOST": "0.0.0.0"},
        {"DW_DATABASE_URL": f"postgresql://user:{CANARY}@host:99999/db"},
        {"DW_DATABASE_URL": f"postgresql://user:{CANARY}#@host/db"},
        {"DW_DATABASE_URL": f"postgresql://user:{CANARY}/x@host/db"},
        {"DW_DATABASE_URL": f"mysql://user:{CANARY}@host/db"},
        {"DW_DATABASE_URL": CANARY},
    ],
)
def test_a_refusal_shows_no_secret_in_message_details_or_traceback(environ: dict[str, str]):
    with pytest.raises(ConfigurationError) as refused:
        load(environ)
    error = refused.value
    told = "".join(traceback.format_exception(error)) + repr(error) + str(error) + repr(error.details)
    assert CANARY[:20] not in told
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_broken_config_file_shows_no_secret(tmp_path: Path):
    path = tmp_path / "penstock.toml"
    path.write_text(f'worker_token = "{CANARY}" oops\n')
    with pytest.raises(ConfigurationError) as refused:
        load({}, path)
    assert CANARY not in "".join(traceback.format_exception(refused.value))
    assert refused.value.__context__ is None


@pytest.mark.parametrize("name", sorted(FILE_VARIANTS))
def test_every_secret_may_come_from_a_file_and_is_stripped(tmp_path: Path, name: str):
    settings = load({name: secret_file(tmp_path, f"  {CANARY}\n".encode())})
    row = next(row for row in describe(settings) if row.name == name.removesuffix("_FILE"))
    assert row.value == "***"
    assert row.source == f"environment ({name})"


def test_the_text_of_the_file_is_the_token(tmp_path: Path):
    settings = load({"DW_WORKER_TOKEN_FILE": secret_file(tmp_path, f"{CANARY}\r\n".encode())})
    assert settings.auth.tokens.worker == Secret(CANARY)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o644, 0o666])
def test_a_secret_file_that_others_may_use_is_refused(tmp_path: Path, mode: int):
    (problem,) = problems_of({"DW_WORKER_TOKEN_FILE": secret_file(tmp_path, CANARY.encode(), mode)})
    assert "chmod 600" in problem
    assert problem.startswith("environment: DW_WORKER_TOKEN_FILE ")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\xff\xfe", "UTF-8"),
        (b"one\ntwo", "one line"),
        (b"x" * 70_000, "larger"),
    ],
)
def test_a_secret_file_with_odd_content_is_refused(tmp_path: Path, content: bytes, word: str):
    (problem,) = problems_of({"DW_WORKER_TOKEN_FILE": secret_file(tmp_path, content)})
    assert word in problem


def test_a_secret_file_that_is_no_file_is_refused_without_waiting(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path):
        (problem,) = problems_of({"DW_WORKER_TOKEN_FILE": str(path)})
        assert "regular file" in problem
    (problem,) = problems_of({"DW_WORKER_TOKEN_FILE": str(tmp_path / "missing")})
    assert "No such file" in problem
    for text in ("", "a\x00b"):
        assert len(problems_of({"DW_WORKER_TOKEN_FILE": text})) == 1


def test_a_secret_and_its_file_together_are_refused(tmp_path: Path):
    path = secret_file(tmp_path, CANARY.encode())
    (problem,) = problems_of({"DW_WORKER_TOKEN": CANARY, "DW_WORKER_TOKEN_FILE": path})
    assert "keep one of them" in problem


def test_the_environment_wins_over_the_config_file_whichever_form_each_uses(tmp_path: Path):
    config = tmp_path / "penstock.toml"
    config.touch(mode=0o600)
    config.write_text(f'worker_token = "{CANARY}-from-file"\n')
    path = secret_file(tmp_path, CANARY.encode())
    settings = load({"DW_WORKER_TOKEN_FILE": path}, config)
    assert settings.auth.tokens.worker == Secret(CANARY)


@pytest.mark.parametrize("name", ["DW_WORKER_TOKEN", "DW_SIGNATURE_KEY"])
@pytest.mark.parametrize("text", ["", "  ", "x" * 5000, "a\nb"])
def test_an_empty_endless_or_broken_secret_is_refused(name: str, text: str):
    (problem,) = problems_of({name: text})
    assert problem.startswith(f"environment: {name} ")
