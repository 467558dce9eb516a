"""The commands that work on this machine: configuration, development server."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from penstock.cli.output.exits import CommandError
from penstock.cli.server.dev import address, dev_overrides, prepare, token_file
from tests.cli.recorded_server import Run

CANARY = "canary-3f786850e387550fdab836ed7e6dc881de23001b"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("DW_")]:
        monkeypatch.delenv(name)


class TestConfig:
    def test_a_valid_configuration_is_exit_code_0(self, run: Run) -> None:
        result = run("config", "check", env={"DW_AUTH_TOKEN": CANARY})
        assert result.exit_code == 0, result.output
        assert result.stdout == ""

    def test_every_problem_is_named_and_the_exit_code_is_78(self, run: Run) -> None:
        result = run("config", "check", env={"DW_AUTH_TOKEN": CANARY, "DW_PORT": "many", "DW_HOTS": "x"})
        assert result.exit_code == 78
        assert "2 problems" in result.stderr
        assert "DW_PORT" in result.stderr
        assert "DW_HOST" in result.stderr
        assert CANARY not in result.output

    def test_a_server_does_not_start_on_a_bad_configuration(self, run: Run) -> None:
        assert run("server", "start", env={"DW_PORT": "many"}).exit_code == 78
        assert run("db", "status", env={"DW_PORT": "many"}).exit_code == 78

    def test_a_file_that_is_not_there_is_a_configuration_problem(self, run: Run, tmp_path: Path) -> None:
        assert run("config", "check", "--config", str(tmp_path / "none.toml")).exit_code == 78

    @pytest.mark.parametrize("flags", [[], ["--json"]])
    def test_show_masks_secrets(self, run: Run, flags: list[str]) -> None:
        secret = {"DW_AUTH_TOKEN": CANARY, "DW_DATABASE_URL": f"postgresql://u:{CANARY}@127.0.0.1/db"}
        result = run("config", "show", *flags, env=secret)
        assert result.exit_code == 0, result.output
        assert "DW_AUTH_TOKEN" in result.stdout
        assert CANARY not in result.output

    def test_show_tells_where_a_value_comes_from(self, run: Run) -> None:
        result = run("config", "show", "--json", env={"DW_AUTH_TOKEN": CANARY, "DW_PORT": "9001"})
        port = next(row for row in json.loads(result.stdout) if row["name"] == "DW_PORT")
        assert port["value"] == "9001"
        assert "environment" in port["source"]


class TestDev:
    def test_the_first_start_makes_a_token_that_only_its_owner_can_read(self, tmp_path: Path) -> None:
        prepare(tmp_path / "data")
        path = token_file(tmp_path / "data")
        assert len(path.read_text().strip()) >= 40
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700

    def test_later_starts_use_the_same_token(self, tmp_path: Path) -> None:
        first = token_file(tmp_path).read_text()
        assert token_file(tmp_path).read_text() == first

    def test_the_data_directory_stays_out_of_version_control(self, tmp_path: Path) -> None:
        prepare(tmp_path)
        assert (tmp_path / ".gitignore").read_text() == "*\n"

    def test_a_token_file_that_others_can_read_is_closed_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        token_file(tmp_path).chmod(0o644)
        path = token_file(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "could be read by other users" in capsys.readouterr().err

    def test_an_empty_token_file_is_refused_with_advice(self, tmp_path: Path) -> None:
        token_file(tmp_path).write_text("")
        with pytest.raises(CommandError) as refused:
            token_file(tmp_path)
        assert "Delete the file" in refused.value.advice

    def test_a_data_directory_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CommandError):
            prepare(tmp_path / "file" / "data")

    def test_the_settings_are_one_database_file_and_one_token(self, tmp_path: Path) -> None:
        overrides = dev_overrides(tmp_path, {})
        assert overrides == {
            "DW_DATABASE_URL": f"sqlite:///{tmp_path / 'penstock.db'}",
            "DW_AUTH_TOKEN_FILE": str(tmp_path / "token"),
            "DW_SOURCE_LINES": "true",
        }

    @pytest.mark.parametrize(
        "name", ["DW_ADMIN_TOKEN", "DW_AUTH_TOKEN_FILE", "DW_AUTH_DRIVER", "DW_SIGNATURE_KEY"]
    )
    def test_credentials_in_the_environment_are_left_to_it(self, tmp_path: Path, name: str) -> None:
        assert list(dev_overrides(tmp_path, {name: "x"})) == ["DW_DATABASE_URL", "DW_SOURCE_LINES"]
        assert not (tmp_path / "token").exists()

    def test_settings_accept_what_dev_asks_for(self, tmp_path: Path) -> None:
        from penstock import settings

        loaded = settings.load({}, flags=dev_overrides(tmp_path, {}))
        assert loaded.store.path == tmp_path / "penstock.db"
        assert loaded.auth.tokens.shared is not None
        assert loaded.warnings == ()

    @pytest.mark.parametrize(
        ("host", "url"),
        [
            ("127.0.0.1", "http://127.0.0.1:8080"),
            ("0.0.0.0", "http://127.0.0.1:8080"),
            ("::", "http://[::1]:8080"),
            ("localhost", "http://localhost:8080"),
        ],
    )
    def test_the_address_is_one_that_clients_can_use(self, host: str, url: str) -> None:
        assert address(host, 8080) == url


class TestDatabase:
    """The database of a development server, addressed by its data directory."""

    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        from penstock import assembly, settings

        data_dir = tmp_path / "data"
        prepare(data_dir)
        assembly.migrate(settings.load({}, flags=dev_overrides(data_dir, {})))
        return data_dir

    def test_its_schema_is_shown_without_a_word_about_tokens(self, run: Run, data_dir: Path) -> None:
        result = run("db", "status", "--data-dir", str(data_dir), "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["up_to_date"] is True
        assert result.stderr == ""

    def test_the_directory_wins_over_the_environment(self, run: Run, data_dir: Path, tmp_path: Path) -> None:
        elsewhere = {"DW_DATABASE_URL": f"sqlite:///{tmp_path / 'other.db'}"}
        result = run("db", "status", "--data-dir", str(data_dir), "--json", env=elsewhere)
        assert json.loads(result.stdout)["up_to_date"] is True

    def test_it_is_migrated_and_copied(self, run: Run, data_dir: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        assert run("db", "migrate", "--data-dir", str(data_dir)).exit_code == 0
        assert run("db", "backup", str(copy), "--data-dir", str(data_dir)).exit_code == 0
        assert copy.stat().st_size > 0

    @pytest.mark.parametrize("verb", [["status"], ["migrate"], ["backup", "copy.db"]])
    def test_a_directory_without_a_database_is_refused_and_nothing_is_made(
        self, run: Run, tmp_path: Path, verb: list[str]
    ) -> None:
        result = run("db", *verb, "--data-dir", str(tmp_path))
        assert result.exit_code == 1
        assert "data_dir_unusable" in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_file_of_settings_beside_it_is_a_usage_error(self, run: Run, data_dir: Path) -> None:
        assert run("db", "status", "--data-dir", str(data_dir), "--config", "x.toml").exit_code == 2
