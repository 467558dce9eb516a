"""The configuration of an app: what is accepted, and the error for each mistake."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AppConfig,
    ConfigurationError,
    CustomQueueConfig,
    MultipleValidationErrors,
    Penstock,
    PostgresConfig,
    QueueMode,
    RecoveryConfig,
)
from penstock.core.limits.policies import LEASE_CAP_MAX
from penstock.sdk.app_config.queues import CAP_MOST

BROKER = PostgresConfig(database_url="postgresql+psycopg://user:secret@db/tasks")
LOW = CustomQueueConfig(name="low", priority=100, max_concurrency=2)
API = CustomQueueConfig(name="api_calls", priority=1, max_concurrency=5)


@pytest.mark.parametrize(
    "said",
    [
        {"queue_mode": QueueMode.DEFAULT, "broker": BROKER},
        {"queue_mode": QueueMode.DEFAULT, "cluster_wide_cap": 20, "broker": BROKER},
        {"queue_mode": QueueMode.CUSTOM, "custom_queues": [API, LOW], "broker": BROKER},
        {"prefetch_buffer": 4, "claim_lease_ms": 5000},
        {"cluster_wide_cap": 50, "prefetch_buffer": 0},
        {
            "queue_mode": QueueMode.CUSTOM,
            "custom_queues": [
                CustomQueueConfig(name="stripe", priority=1, max_concurrency=3),
                CustomQueueConfig(name="email", priority=50, max_concurrency=10),
                CustomQueueConfig(name="reports", priority=100, max_concurrency=2),
            ],
            "cluster_wide_cap": 15,
        },
        {"prefetch_buffer": 1, "claim_lease_ms": 300_000},
        {"recovery": RecoveryConfig()},
    ],
)
def test_every_configuration_of_the_seed_is_taken(said: dict[str, Any]) -> None:
    made = AppConfig(**said)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ({"cluster_wide_cap": 0}, "bad_cap", "not 0"),
        ({"cluster_wide_cap": -1}, "bad_cap", "not -1"),
        ({"cluster_wide_cap": True}, "bad_cap", "not true"),
        (
            {"cluster_wide_cap": 10**30},
            "bad_cap",
            "cluster_wide_cap must be a whole number from 1 to 1000000, not a number beyond 64 bits",
        ),
        (
            {"prefetch_buffer": -1},
            "bad_prefetch",
            "prefetch_buffer must be a whole number from 0 to 1000000, not -1",
        ),
        (
            {"prefetch_buffer": 2 * 10**9, "claim_lease_ms": 5000},
            "bad_prefetch",
            "0 to 1000000, not 2000000000",
        ),
        ({"prefetch_buffer": 4}, "bad_lease", "such as claim_lease_ms=5000"),
        ({"prefetch_buffer": 0, "claim_lease_ms": 5000}, "bad_lease", "nothing is claimed ahead"),
        (
            {"prefetch_buffer": 4, "claim_lease_ms": 0},
            "bad_lease",
            "claim_lease_ms must be a whole number from 100 to 600000, not 0",
        ),
        ({"custom_queues": []}, "bad_queue_mode", "queue_mode is DEFAULT"),
        ({"queue_mode": QueueMode.CUSTOM}, "bad_queue_mode", "there are no custom_queues"),
        ({"queue_mode": QueueMode.CUSTOM, "custom_queues": []}, "bad_queue_mode", "no custom_queues"),
        (
            {"queue_mode": QueueMode.CUSTOM, "custom_queues": [LOW, LOW]},
            "bad_queue_mode",
            "'low' 2 times",
        ),
        (
            {"queue_mode": QueueMode.CUSTOM, "custom_queues": 5},
            "bad_queue_mode",
            "a list of CustomQueueConfig",
        ),
        (
            {"queue_mode": QueueMode.CUSTOM, "custom_queues": LOW},
            "bad_queue_mode",
            "a list of CustomQueueConfig",
        ),
        ({"queue_mode": QueueMode.CUSTOM, "custom_queues": "low"}, "bad_queue_mode", "not 'low'"),
        ({"queue_mode": QueueMode.CUSTOM, "custom_queues": {"a": LOW}}, "bad_queue_mode", "not {'a': "),
        ({"queue_mode": QueueMode.CUSTOM, "custom_queues": ["low"]}, "bad_queue_mode", "not 'low'"),
        ({"queue_mode": "priority"}, "bad_queue_mode", "QueueMode.DEFAULT or QueueMode.CUSTOM"),
        ({"cluster_cap": 5}, "unknown_keyword", "did you mean 'cluster_wide_cap'?"),
        ({"broker": "postgresql://db"}, "bad_value", "broker is PostgresConfig(database_url=…)"),
        (
            {"prefetch_buffer": 1, "claim_lease_ms": 500, "max_claim_renew_age_ms": 2**31},
            "bad_lease",
            "max_claim_renew_age_ms must be at most 2147483647, not 2147483648",
        ),
        (
            {"prefetch_buffer": 1, "claim_lease_ms": 500, "max_claim_renew_age_ms": 100},
            "bad_lease",
            "at least claim_lease_ms (500), not 100",
        ),
    ],
)
def test_one_mistake_is_one_error_that_names_the_way_out(said: dict[str, Any], kind: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AppConfig(**said)
    assert not isinstance(caught.value, MultipleValidationErrors)
    assert caught.value.details["kind"] == kind
    assert told in str(caught.value)


def test_several_mistakes_are_told_together() -> None:
    with pytest.raises(MultipleValidationErrors) as caught:
        AppConfig(cluster_wide_cap=5, prefetch_buffer=2)
    assert [each.details["kind"] for each in caught.value.errors] == ["bad_cap", "bad_lease"]
    assert "2 problems in AppConfig" in str(caught.value)
    with pytest.raises(MultipleValidationErrors) as caught:
        CustomQueueConfig(name="", priority=0, max_concurrency=-1)
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(RecoveryConfig)])
def test_a_recovery_threshold_is_refused_with_what_to_use_instead(field: str) -> None:
    given: dict[str, Any] = {field: True if field.startswith("auto_") else 30_000}
    with pytest.raises(
        ConfigurationError, match=f"RecoveryConfig: {field} is not supported. [A-Z]"
    ) as caught:
        RecoveryConfig(**given)
    assert (caught.value.details["kind"], caught.value.details["field"]) == ("bad_recovery", field)


def test_several_recovery_thresholds_are_refused_together() -> None:
    with pytest.raises(MultipleValidationErrors) as caught:
        RecoveryConfig(claimed_stale_threshold_ms=10_000, running_stale_threshold_ms=20_000)
    assert ["claim_lease_ms" in str(caught.value), "heartbeat_timeout" in str(caught.value)] == [True, True]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"priority": 0}, "priority must be a whole number from 1 to 100, not 0"),
        ({"priority": 101}, "priority must be a whole number from 1 to 100, not 101"),
        ({"priority": 1.5}, "priority must be a whole number from 1 to 100, not 1.5"),
        ({"max_concurrency": -1}, "max_concurrency must be a whole number from 0 to 1000000, not -1"),
        (
            {"max_concurrency": 2**31},
            "max_concurrency must be a whole number from 0 to 1000000, not 2147483648",
        ),
        ({"name": ""}, "The name of a queue must be 1 to 64 letters"),
        ({"name": "."}, 'not "."'),
        ({"name": ".."}, 'not ".."'),
        ({"name": "q" * 200}, "1 to 64 letters"),
        ({"name": "a\nb"}, 'not "a\\nb"'),
        ({"concurrency": 5}, "did you mean 'max_concurrency'?"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=r".") as caught:
        CustomQueueConfig(**{"name": "mail"} | said)
    assert told in str(caught.value)


def test_a_cap_goes_as_far_as_the_server_takes_it() -> None:
    assert CAP_MOST == LEASE_CAP_MAX
    assert AppConfig(cluster_wide_cap=CAP_MOST).cluster_wide_cap == CAP_MOST


def test_a_queue_says_little_and_means_the_seeds_defaults() -> None:
    from penstock.sdk.app_config.queues import CustomQueueConfig as ByItsOldPath

    assert ByItsOldPath is CustomQueueConfig
    made = CustomQueueConfig(name="mail")
    assert (made.priority, made.max_concurrency) == (1, 5)
    assert CustomQueueConfig(name="mail", max_concurrency=None).max_concurrency is None


def test_queues_are_served_by_priority_and_then_as_they_are_written() -> None:
    also = CustomQueueConfig(name="also_first", priority=1)
    made = AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=[LOW, API, also])
    assert [each.name for each in made.queues] == ["api_calls", "also_first", "low"]


def test_queues_may_come_from_anything_with_an_order_and_do_not_change_afterwards() -> None:
    written = [LOW, API]
    made = AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=written)
    written.append(LOW)
    one_by_one: Any = (each for each in (LOW, API))
    assert AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=one_by_one) == made
    assert made.custom_queues == (LOW, API)
    assert hash(made) == hash(dataclasses.replace(made))


@pytest.mark.parametrize(("said", "most"), [({}, 8), ({"prefetch_buffer": 4, "claim_lease_ms": 5000}, 12)])
def test_a_worker_claims_as_many_as_it_can_run_and_its_buffer_unless_told_otherwise(
    said: dict[str, Any], most: int
) -> None:
    """Scenario 21."""
    assert AppConfig(**said).claims_most(8) == most
    assert AppConfig(**said).claims_most(8, 3) == 3


@pytest.mark.parametrize("url", ["mysql://db", "", "postgresql", "redis://x"])
def test_an_address_that_is_neither_a_server_nor_a_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="database_url is the address"):
        PostgresConfig(database_url=url)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(BROKER)
    with pytest.raises(ConfigurationError) as caught:
        PostgresConfig(database_url="mysql://user:secret@db/x")
    assert "secret" not in str(caught.value)


def test_a_broker_that_is_a_server_is_where_the_app_connects_to() -> None:
    broker = PostgresConfig(database_url="http://penstock.example:8080", pool_size=5)
    app = Penstock("shop", config=AppConfig(broker=broker))
    assert app.connection.url == "http://penstock.example:8080"
    assert broker.unused == ["pool_size"]
    assert BROKER.unused == ["database_url"]


def test_an_app_in_default_mode_has_one_queue_and_its_tasks_name_none() -> None:
    app = Penstock(config=AppConfig())

    @app.task
    def add() -> int:
        return 1

    assert (add.queue, app.queues) == ("default", ["default"])
    with pytest.raises(ConfigurationError, match=r"test_app_config\.py:\d+\) names the queue 'mail'"):
        app.task(queue="mail")(lambda_named("send"))


def test_an_app_in_custom_mode_wants_a_queue_that_it_has_for_each_task() -> None:
    app = Penstock("shop", config=AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=[LOW, API]))
    with pytest.raises(ConfigurationError, match=r"\) names no queue.*one of api_calls, low"):
        app.task(lambda_named("send"))
    with pytest.raises(ConfigurationError, match="Did you mean 'low'"):
        app.task(queue="lwo")(lambda_named("send"))
    assert app.task(queue="low")(lambda_named("send")).queue == "low"
    assert app.queues == ["api_calls", "low"]


def lambda_named(name: str) -> Any:
    def made() -> int:
        return 1

    made.__name__ = name
    return made


def test_what_the_configuration_says_is_not_said_again_beside_it() -> None:
    with pytest.raises(ConfigurationError, match="leave queue= and queues= out"):
        Penstock("shop", config=AppConfig(), queue="mail")
    with pytest.raises(TypeError, match="config is an AppConfig"):
        Penstock("shop", config={"queue_mode": "default"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"is text, .* not AppConfig: write config=AppConfig"):
        Penstock(AppConfig())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="takes keywords only"):
        AppConfig(QueueMode.DEFAULT)  # type: ignore[call-arg]


def test_what_the_guide_of_the_worker_program_shows_is_so() -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "worker-program.md"
    found: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, found)
    assert found["app"].queues == ["stripe", "email", "reports"]
    assert found["config"].claims_most(8) == 12
