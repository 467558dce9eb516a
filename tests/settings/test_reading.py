"""What an operator gives is what the policies say; what is not given has its documented default."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError, Reason
from penstock.schema.kinds import Flag, Whole
from penstock.settings import AuthDriver, LogFormat, LogLevel, SignatureProfile, SqliteSynchronous, load
from penstock.settings.catalogue import CATALOGUE, NAMES, SETTINGS, Setting

WHOLE_NUMBERS = [setting for setting in CATALOGUE if isinstance(setting.kind, Whole)]
FLAGS = [setting for setting in CATALOGUE if isinstance(setting.kind, Flag)]


def problems_of(environ: dict[str, str], config_path: Path | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        load(environ, config_path)
    assert refused.value.reason is Reason.CONFIGURATION_INVALID
    problems: list[str] = refused.value.details["problems"]
    return problems


def name_of(setting: Setting) -> str:
    return setting.name


def test_nothing_given_means_loopback_sqlite_and_the_defaults_of_the_contract():
    settings = load({})
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8080)
    assert settings.listen.is_loopback
    assert settings.store.path == Path("penstock.db")
    assert settings.store.synchronous is SqliteSynchronous.FULL
    assert (settings.store.pool_size, settings.store.statement_timeout_ms) == (8, 10_000)
    assert settings.auth.driver is AuthDriver.TOKEN
    assert settings.auth.secrets.is_empty
    assert settings.auth.signature_profile is SignatureProfile.PENSTOCK
    assert settings.auth.signature_window_ms == 60_000
    assert settings.auth.backward_compatible
    assert settings.limits.payload_bytes_max == 2 * 1024 * 1024
    assert settings.limits.memo_bytes_max == 256 * 1024
    assert settings.limits.search_attributes_max == 100
    assert settings.limits.search_attribute_key_length_max == 128
    assert settings.limits.search_attribute_value_bytes_max == 2048
    assert settings.limits.operation_name_bytes_max == 256
    assert settings.limits.pending_activities_max == 2000
    assert settings.limits.pending_timers_max == 2000
    assert settings.limits.pending_query_tasks_max == 1024
    assert settings.limits.history_events_max == 50_000
    assert settings.leases.workflow_lease_ms == 60_000
    assert settings.leases.activity_lease_ms == 300_000
    assert settings.leases.query_lease_ms == 60_000
    assert settings.polls.poll_timeout_ms == 30_000
    assert settings.polls.poll_timeout_ms_max == 60_000
    assert settings.polls.query_timeout_ms == 30_000
    assert settings.polls.worker_stale_after_ms == 60_000
    assert settings.polls.long_polls_max == 10_000
    assert (settings.logs.level, settings.logs.format) == (LogLevel.INFO, LogFormat.AUTO)
    assert settings.default_namespace == "default"
    assert settings.retention_days_default == 30
    assert settings.listen.compression_enabled


def test_every_policy_field_follows_its_variable():
    settings = load(
        {
            "DW_HOST": "::1",
            "DW_PORT": "0",
            "DW_SERVER_ID": "node-1",
            "DW_DEFAULT_NAMESPACE": "Orders-Prod",
            "DW_HISTORY_RETENTION_DAYS": "90",
            "DW_ALLOWED_HOSTS": "Api.Example.com, 10.0.0.5",
            "DW_TRUSTED_PROXIES": "10.0.0.1, 192.168.0.0/16",
            "DW_COMPRESSION_ENABLED": "off",
            "DW_AUTH_DRIVER": "Signature",
            "DW_SIGNATURE_KEY": "k" * 20 + "abcdefghijklmnop",
            "DW_SIGNATURE_WINDOW_SECONDS": "300",
            "DW_MAX_PAYLOAD_BYTES": "1000000",
            "DW_MAX_MEMO_BYTES": "1",
            "DW_MAX_SEARCH_ATTRIBUTES": "2",
            "DW_MAX_SEARCH_ATTRIBUTE_KEY_LENGTH": "3",
            "DW_MAX_SEARCH_ATTRIBUTE_VALUE_BYTES": "4",
            "DW_MAX_OPERATION_NAME_LENGTH": "5",
            "DW_MAX_PENDING_ACTIVITIES": "0",
            "DW_MAX_PENDING_TIMERS": "7",
            "DW_MAX_HISTORY_EVENTS": "800",
            "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": "9",
            "DW_WORKER_POLL_TIMEOUT": "10",
            "DW_WORKFLOW_TASK_TIMEOUT": "11",
            "DW_ACTIVITY_TASK_TIMEOUT": "12",
            "DW_QUERY_TASK_TIMEOUT": "13",
            "DW_QUERY_TASK_LEASE_TIMEOUT": "14",
            "DW_WORKER_STALE_AFTER_SECONDS": "15",
            "DW_MAX_LONG_POLLS": "16",
            "DW_SQLITE_SYNCHRONOUS": "normal",
            "DW_POSTGRES_POOL_SIZE": "17",
            "DW_STATEMENT_TIMEOUT_MS": "1800",
            "DW_LOG_LEVEL": "DEBUG",
            "DW_LOG_FORMAT": "json",
        }
    )
    assert (settings.listen.host, settings.listen.port) == ("::1", 0)
    assert settings.listen.allowed_hosts == frozenset(
        {"localhost", "127.0.0.1", "::1", "api.example.com", "10.0.0.5"}
    )
    assert settings.listen.trusted_proxies == (
        ipaddress.ip_network("10.0.0.1/32"),
        ipaddress.ip_network("192.168.0.0/16"),
    )
    assert not settings.listen.compression_enabled
    assert settings.server_id == "node-1"
    assert settings.default_namespace == "orders-prod"
    assert settings.retention_days_default == 90
    assert settings.auth.driver is AuthDriver.SIGNATURE
    assert settings.auth.secrets.shared is not None
    assert settings.auth.signature_window_ms == 300_000
    assert settings.limits.payload_bytes_max == 1_000_000
    assert settings.limits.memo_bytes_max == 1
    assert settings.limits.search_attributes_max == 2
    assert settings.limits.search_attribute_key_length_max == 3
    assert settings.limits.search_attribute_value_bytes_max == 4
    assert settings.limits.operation_name_bytes_max == 5
    assert settings.limits.pending_activities_max == 0
    assert settings.limits.pending_timers_max == 7
    assert settings.limits.history_events_max == 800
    assert settings.limits.pending_query_tasks_max == 9
    assert settings.polls.poll_timeout_ms == 10_000
    assert settings.leases.workflow_lease_ms == 11_000
    assert settings.leases.activity_lease_ms == 12_000
    assert settings.polls.query_timeout_ms == 13_000
    assert settings.leases.query_lease_ms == 14_000
    assert settings.polls.worker_stale_after_ms == 15_000
    assert settings.polls.long_polls_max == 16
    assert settings.store.synchronous is SqliteSynchronous.NORMAL
    assert settings.store.pool_size == 17
    assert settings.store.statement_timeout_ms == 1800
    assert (settings.logs.level, settings.logs.format) == (LogLevel.DEBUG, LogFormat.JSON)
    assert settings.warnings == ()


@pytest.mark.parametrize(("poll", "stale_ms", "query_ms"), [("0", 60_000, 1_000), ("60", 120_000, 60_000)])
def test_staleness_and_query_patience_follow_the_poll_timeout(poll: str, stale_ms: int, query_ms: int):
    polls = load({"DW_WORKER_POLL_TIMEOUT": poll}).polls
    assert (polls.worker_stale_after_ms, polls.query_timeout_ms) == (stale_ms, query_ms)


def test_the_query_lease_follows_the_workflow_lease():
    assert load({"DW_WORKFLOW_TASK_TIMEOUT": "90"}).leases.query_lease_ms == 90_000


def test_the_caller_supplies_the_server_id_that_nobody_gave():
    assert load({}, server_id_default="host-1-4711").server_id == "host-1-4711"
    assert load({"DW_SERVER_ID": "mine"}, server_id_default="host-1-4711").server_id == "mine"


def test_the_command_line_wins_over_the_environment():
    settings = load({"DW_PORT": "9000"}, flags={"DW_PORT": "9001"})
    assert settings.listen.port == 9001


def test_policies_cannot_be_changed_after_reading():
    settings = load({})
    with pytest.raises(AttributeError):
        settings.listen.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("setting", WHOLE_NUMBERS, ids=name_of)
@pytest.mark.parametrize(
    "text",
    ["", " ", "NaN", "nan", "Infinity", "-inf", "-1", "+1", "1.0", "1e3", "1_000", "0x10", "007", " 7", "7\n",
     "٣", "²", "true", "9" * 19, "9" * 5000, "\ud800"],
)  # fmt: skip
def test_what_is_no_plain_whole_number_is_refused_with_the_bounds(setting: Setting, text: str):
    (problem,) = problems_of({setting.name: text})
    assert problem.startswith(f"environment: {setting.name} ")
    assert setting.kind.expects in problem
    assert problem.isprintable()
    assert len(problem) < 300


@pytest.mark.parametrize("setting", WHOLE_NUMBERS, ids=name_of)
def test_both_bounds_are_allowed_and_the_next_numbers_are_not(setting: Setting):
    assert isinstance(setting.kind, Whole)
    assert setting.kind.most is not None
    for value in (setting.kind.least, setting.kind.most):
        load({setting.name: str(value), "DW_DATABASE_URL": "postgresql://penstock@127.0.0.1/penstock"})
    for value in (setting.kind.least - 1, setting.kind.most + 1):
        assert problems_of({setting.name: str(value)}) == [
            f'environment: {setting.name} must be {setting.kind.expects}, not "{value}"'
        ]


@pytest.mark.parametrize("setting", FLAGS, ids=name_of)
def test_a_flag_takes_the_usual_words_and_no_others(setting: Setting):
    for text in ("true", "1", "yes", "ON", "false", "0", "No", "off"):
        load({setting.name: text})
    for text in ("", "2", "enabled", "t", "y", "None", " true"):
        assert len(problems_of({setting.name: text})) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DW_AUTH_DRIVER", "basic"),
        ("DW_LOG_LEVEL", "trace"),
        ("DW_LOG_FORMAT", "xml"),
        ("DW_SIGNATURE_PROFILE", "rfc9421"),
        ("DW_SQLITE_SYNCHRONOUS", "off"),
        ("DW_DEFAULT_NAMESPACE", "two words"),
        ("DW_DEFAULT_NAMESPACE", ".."),
        ("DW_DEFAULT_NAMESPACE", "n" * 129),
        ("DW_DEFAULT_NAMESPACE", "ключ"),
        ("DW_SERVER_ID", "a b"),
        ("DW_SERVER_ID", "s" * 129),
        ("DW_HOST", ""),
        ("DW_HOST", "127.1"),
        ("DW_HOST", "0x7f000001"),
        ("DW_HOST", "127.0.0.1:8080"),
        ("DW_HOST", "http://localhost"),
        ("DW_HOST", "[localhost]"),
        ("DW_HOST", "-a.example"),
        ("DW_ALLOWED_HOSTS", "example.com:8080"),
        ("DW_ALLOWED_HOSTS", "*"),
        ("DW_ALLOWED_HOSTS", "a,,b"),
        ("DW_TRUSTED_PROXIES", "proxy.example"),
        ("DW_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("DW_TRUSTED_PROXIES", "0.0.0.0/0"),
        ("DW_TRUSTED_PROXIES", "::/0"),
        ("DW_CONFIG", ""),
    ],
)
def test_a_value_of_the_wrong_shape_is_refused_by_name(name: str, text: str):
    (problem,) = problems_of({name: text})
    assert problem.startswith(f"environment: {name} ")


def test_a_value_in_a_message_cannot_steer_the_terminal():
    (problem,) = problems_of({"DW_LOG_LEVEL": "\x1b[31mred\r\n\x7f\x9b"})
    assert problem.isprintable()
    (problem,) = problems_of({"DW_\x1b[31m": "1"})
    assert problem.isprintable()


def test_all_problems_are_reported_together_one_a_line():
    environ = {"DW_PORT": "x", "DW_LOG_LEVEL": "y", "DW_NONSENSE_XYZ": "1", "DW_AUTH_DRIVER": "signature"}
    with pytest.raises(ConfigurationError) as refused:
        load(environ)
    lines = refused.value.message.splitlines()
    assert lines[0] == "The configuration is not valid:"
    assert [next(name for name in environ if name in line) for line in lines[1:]] == [
        "DW_NONSENSE_XYZ",
        "DW_PORT",
        "DW_LOG_LEVEL",
        "DW_AUTH_DRIVER",
    ]


def test_a_spoilt_setting_does_not_cause_further_complaints_about_what_depends_on_it():
    assert len(problems_of({"DW_AUTH_DRIVER": "nome", "DW_HOST": "0.0.0.0"})) == 1
    assert len(problems_of({"DW_WORKER_POLL_TIMEOUT": "x"})) == 1
    assert len(problems_of({"DW_AUTH_DRIVER": "signature", "DW_SIGNATURE_KEY": ""})) == 1


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("DW_AUTH_DRIVR", "DW_AUTH_DRIVER"),
        ("DW_MAX_PAYLOAD_BYTE", "DW_MAX_PAYLOAD_BYTES"),
        ("DW_WORKER_TOKENS", "DW_WORKER_TOKEN"),
        ("DW_ADMIN_TOKEN_FLIE", "DW_ADMIN_TOKEN_FILE"),
        ("DW_auth_driver", "DW_AUTH_DRIVER"),
    ],
)
def test_an_unknown_variable_is_refused_with_its_nearest_neighbour(wrong: str, right: str):
    assert problems_of({wrong: "1"}) == [f'environment: unknown setting "{wrong}": did you mean "{right}"?']


def test_an_unknown_variable_without_neighbours_points_to_the_list():
    (problem,) = problems_of({"DW_QQQQQQ": "1"})
    assert "penstock config show" in problem


def test_crash_points_are_no_setting():
    assert len(problems_of({"DW_TEST_CRASH_AT": "commit"})) == 1


def test_variables_of_clients_and_of_strangers_are_left_alone():
    load({"DW_ENV": "prod", "DURABLE_WORKFLOW_SERVER_URL": "x", "PATH": "/bin", "dw_port": "x", "DWARF": "1"})


@given(st.integers(0, 65535))
def test_every_port_is_read_as_written(port: int):
    assert load({"DW_PORT": str(port)}).listen.port == port


@given(st.sampled_from(sorted(NAMES)), st.text(max_size=80))
def test_any_text_for_any_setting_is_either_taken_or_refused_with_its_name(name: str, text: str):
    try:
        load({name: text})
    except ConfigurationError as refused:
        for problem in refused.details["problems"]:
            assert problem.isprintable()
            assert name in problem or "configuration file" in problem


@given(st.text(alphabet=st.characters(codec="ascii", categories=["Lu", "Nd"]), min_size=1, max_size=30))
def test_a_name_that_is_not_in_the_catalogue_never_starts_a_server(rest: str):
    name = f"DW_{rest}"
    if name not in NAMES and name != "DW_ENV":
        (problem,) = problems_of({name: "1"})
        assert f'unknown setting "{name}"' in problem


def test_the_catalogue_has_no_name_twice_and_every_default_obeys_its_own_rule():
    assert len(SETTINGS) == len(CATALOGUE)
    assert len(set(NAMES)) == len(NAMES)
    for setting in CATALOGUE:
        assert setting.name.startswith("DW_")
        assert setting.description.endswith(".")
        if setting.default is not None:
            setting.kind.parse(setting.default)
