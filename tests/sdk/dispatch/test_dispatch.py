"""Options of activity calls: from the dispatch configuration, the definition and the call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any

import pytest

from penstock import Penstock, Replayer, RetryPolicy, activity, workflow
from penstock.dispatch import DispatchConfig, dispatch_from
from penstock.sdk.activities.routing import RoutingKeyError
from penstock.sdk.dispatch_options import ConfigGetter, resolve_options
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.workflows.definitions import WorkflowDefinition
from tests.sdk.replay.histories_by_hand import Story, a_run

Json = dict[str, Any]
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ROUTES: Json = {
    "worker_config": {
        "default_task_queue": "home",
        "retry_policy_config": {"non_retryable_error_types": ["Wrong"]},
        "activity_queues": {
            "generate": {
                "default": "llm",
                "by_handle": {"opus": "anthropic", "eu": "europe"},
                "handle_options": {"opus": {"start_to_close_timeout": "0:15:00"}},
            }
        },
    },
    "queue_options": {
        "anthropic": {
            "start_to_close_timeout": "0:05:00",
            "heartbeat_timeout": "0:01:00",
            "retry_policy_config": {"maximum_attempts": 5, "non_retryable_error_types_extra": ["Auth"]},
        }
    },
}


def routes(**changes: Any) -> DispatchConfig:
    return dispatch_from(ROUTES | changes)


@dataclass
class Job:
    model: str
    tenant: Json = field(default_factory=dict)


class Model(StrEnum):
    OPUS = "opus"


class Size(Enum):
    LARGE = 3


@activity.defn(name="generate", routing_key="model")
async def generate(job: Job) -> str:
    return job.model


@activity.defn
async def other(text: str) -> str:
    return text


@activity.defn(
    name="generate",
    routing_key="model",
    start_to_close_timeout=2 * MINUTE,
    schedule_to_start_timeout=9 * MINUTE,
    retry_policy=RetryPolicy(maximum_attempts=9, non_retryable_error_types=["Decorated"]),
)
async def decorated(job: Job) -> str:
    return job.model


def asked(call: Any, config: DispatchConfig | None = None) -> Json:
    """The command that workflow code sends for a call."""

    @workflow.defn
    class Caller:
        @workflow.run
        async def run(self) -> None:
            call()

    result = Replayer(workflows=[Caller], dispatch=config).replay(_begun("Caller"))
    if result.failure is not None:
        raise result.failure
    found: Json = result.next.commands[0]
    return found


def _begun(workflow_type: str) -> Json:
    return {"workflow_type": workflow_type, "events": Story().events}


# ── options ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_call_goes_where_its_handle_leads_with_the_options_of_all_layers() -> None:
    config = routes()
    said = asked(lambda: workflow.start_activity(generate, Job("opus")), config)
    assert said["queue"] == "anthropic"
    assert said["start_to_close_timeout"] == 15 * 60
    assert said["heartbeat_timeout"] == 60
    assert said["retry_policy"]["max_attempts"] == 5
    assert said["retry_policy"]["non_retryable_error_types"] == ["Wrong", "Auth"]
    assert said["routing_key"] == "opus"
    assert said["dispatch"]["fingerprint"] == config.fingerprint
    assert said["dispatch"]["sources"] == {
        "task_queue": "activity_queues.by_handle",
        "start_to_close_timeout": "handle_options",
        "heartbeat_timeout": "queue_options",
        "retry.initial_interval": "baseline",
        "retry.backoff_coefficient": "baseline",
        "retry.maximum_interval": "baseline",
        "retry.maximum_attempts": "queue_options",
        "retry.non_retryable": "baseline + queue_extra",
    }


def test_a_call_by_name_is_routed_too_and_has_no_key_unless_one_is_given() -> None:
    assert asked(lambda: workflow.start_activity("generate", 1), routes())["queue"] == "llm"
    said = asked(lambda: workflow.start_activity("generate", 1, routing_key="eu"), routes())
    assert (said["queue"], said["routing_key"]) == ("europe", "eu")


def test_without_a_configuration_a_call_says_what_it_always_said() -> None:
    said = asked(lambda: workflow.start_activity(other, "x"))
    assert set(said) == {"type", "activity_type", "arguments", "retry_policy"}
    assert said["retry_policy"] == RetryPolicy().on_the_wire()


def test_options_of_the_definition_hold_without_a_configuration_and_under_the_call() -> None:
    said = asked(lambda: workflow.start_activity(decorated, Job("x")))
    assert (said["start_to_close_timeout"], said["retry_policy"]["max_attempts"]) == (120, 9)
    assert "dispatch" not in said
    policy = RetryPolicy(maximum_attempts=1, non_retryable_error_types=["Called"])
    said = asked(lambda: workflow.start_activity(decorated, Job("x"), retry_policy=policy))
    assert said["retry_policy"]["max_attempts"] == 1
    assert said["retry_policy"]["non_retryable_error_types"] == ["Decorated", "Called"]


@pytest.mark.parametrize(
    ("said", "source", "seconds"),
    [
        ({}, "decorator", 120),
        ({"queue_options": {"llm": {"start_to_close_timeout": 7}}}, "queue_options", 7),
        ({"start_to_close_timeout": 3 * SECOND}, "call site", 3),
    ],
    ids=["decorator over baseline", "queue over decorator", "call over all"],
)
def test_the_last_word_on_a_timeout_wins(said: Json, source: str, seconds: int) -> None:
    queues = said.pop("queue_options", {})
    config = routes(queue_options=queues)
    found = asked(lambda: workflow.start_activity(decorated, Job("sonnet"), **said), config)
    assert found["start_to_close_timeout"] == seconds
    assert found["dispatch"]["sources"]["start_to_close_timeout"] == source
    assert found["schedule_to_start_timeout"] == 9 * 60


def test_names_that_are_not_tried_again_add_up_over_all_five_layers() -> None:
    tree = {
        **ROUTES,
        "worker_config": ROUTES["worker_config"]
        | {
            "activity_queues": {
                "generate": {
                    "default": "anthropic",
                    "handle_options": {
                        "opus": {"retry_policy_config": {"non_retryable_error_types_extra": ["Handle"]}}
                    },
                }
            }
        },
    }
    policy = RetryPolicy(non_retryable_error_types=["Called"])
    found = asked(
        lambda: workflow.start_activity(decorated, Job("opus"), retry_policy=policy), dispatch_from(tree)
    )
    names = found["retry_policy"]["non_retryable_error_types"]
    assert names == ["Wrong", "Decorated", "Auth", "Handle", "Called"]


def test_a_queue_that_the_call_names_brings_its_own_options() -> None:
    found = asked(lambda: workflow.start_activity(other, "x", task_queue="anthropic"), routes())
    assert found["start_to_close_timeout"] == 300
    assert found["dispatch"]["sources"]["task_queue"] == "call site"


def test_dispatch_none_leaves_the_configuration_out_of_one_call() -> None:
    found = asked(lambda: workflow.start_activity(generate, Job("opus"), dispatch=None), routes())
    assert not {"queue", "dispatch", "start_to_close_timeout"} & set(found)
    assert found["routing_key"] == "opus"


def test_a_call_may_name_a_configuration_of_its_own() -> None:
    found = asked(lambda: workflow.start_activity(generate, Job("opus"), dispatch=routes()))
    assert found["queue"] == "anthropic"
    with pytest.raises(TypeError, match="dispatch is a DispatchConfig"):
        asked(lambda: workflow.start_activity(generate, Job("opus"), dispatch="file.toml"))  # type: ignore[call-overload]


def _splatted(config: DispatchConfig, called: Any = generate, **changes: Any) -> Callable[[], Any]:
    """A call whose code resolves its options itself, and changes some."""

    def call() -> Any:
        kwargs = config.worker_config.resolve_dispatch(
            activity_name="generate", routing_key="opus", queue_options_by_queue=config.queue_options
        ).to_execute_kwargs()
        return workflow.start_activity(called, arg=Job("opus"), summary="LLM text", **kwargs | changes)

    return call


@pytest.mark.parametrize("own", [None, routes()], ids=["alone", "with a configuration, too"])
@pytest.mark.parametrize("called", [generate, "generate"], ids=["defined", "by name"])
def test_options_that_the_code_resolved_itself_are_splatted_into_a_call_and_keep_their_sources(
    own: DispatchConfig | None, called: Any
) -> None:
    config = routes()
    found = asked(_splatted(config, called), own)
    plain = asked(lambda: workflow.start_activity(generate, Job("opus")), config)
    for each in ("queue", "start_to_close_timeout", "heartbeat_timeout", "retry_policy", "routing_key"):
        assert found[each] == plain[each]
    assert found["summary"] == "LLM text"
    assert found["dispatch"]["sources"] == plain["dispatch"]["sources"]
    assert found["dispatch"].get("fingerprint") == (own and config.fingerprint)


def test_what_the_code_changes_in_options_that_it_resolved_is_the_calls() -> None:
    config = routes()
    changed = asked(_splatted(config, start_to_close_timeout=SECOND, task_queue="europe"), config)
    sources = changed["dispatch"]["sources"]
    assert (sources["start_to_close_timeout"], sources["task_queue"]) == ("call site", "call site")
    assert sources["retry.maximum_attempts"] == "queue_options"
    policy = RetryPolicy(maximum_attempts=2)
    sources = asked(_splatted(config, retry_policy=policy), config)["dispatch"]["sources"]
    assert sources["retry.maximum_attempts"] == "call site"


def test_options_of_another_file_do_not_claim_to_be_of_the_one_in_force() -> None:
    other_file = routes(queue_options={})
    said = asked(_splatted(routes()), other_file)["dispatch"]
    assert "fingerprint" not in said
    assert said["sources"]["heartbeat_timeout"] == "queue_options"


def test_pauses_that_know_no_limit_fit_on_the_wire() -> None:
    config = dispatch_from({"worker_config": {"retry_policy_config": {"maximum_attempts": "unlimited"}}})
    pauses = asked(lambda: workflow.start_activity(other, "x"), config)["retry_policy"]["backoff_ms"]
    assert max(pauses) == 31_536_000_000


@pytest.mark.parametrize(("longest", "pauses"), [(None, [1000, 10_000, 100_000]), (5 * SECOND, [1000, 5000])])
def test_the_longest_pause_of_a_call_is_what_its_policy_says_or_a_hundred_times_the_first(
    longest: timedelta | None, pauses: list[int]
) -> None:
    policy = RetryPolicy(initial_interval=SECOND, backoff_coefficient=10, maximum_interval=longest)
    for config in (None, routes()):
        found = asked(lambda: workflow.start_activity(generate, Job("x"), retry_policy=policy), config)
        assert found["retry_policy"]["backoff_ms"] == pauses


def test_code_and_file_that_contradict_each_other_do_not_break_the_call() -> None:
    queues = {"llm": {"retry_policy_config": {"maximum_interval": "0:00:04"}}}
    patient = RetryPolicy(initial_interval=MINUTE)

    @activity.defn(name="generate", retry_policy=patient)
    async def patiently(job: Job) -> None: ...

    found = asked(lambda: workflow.start_activity(patiently, Job("x")), routes(queue_options=queues))
    assert found["retry_policy"]["backoff_ms"] == [60_000]


# ── routing keys ────────────────────────────────────────────────────────────────────────────────────────────


def _keyed(rule: Any) -> Any:
    async def act(job: Any, model: str = "usual") -> None: ...

    return activity.defn(name="act", routing_key=rule)(act)


@pytest.mark.parametrize(
    ("rule", "args", "key"),
    [
        ("model", [Job("opus")], "opus"),
        ("tenant.region", [Job("x", {"region": "eu"})], "eu"),
        ("model", [{"model": "opus"}], "opus"),
        ("model", [{"model": None}], None),
        ("model", [{"model": ""}], ""),
        ("model", [{"model": Model.OPUS}], "opus"),
        (activity.arg("model"), [1, "opus"], "opus"),
        (activity.arg("model"), [1], "usual"),
        (lambda job, model: f"{job}-{model}", [1], "1-usual"),
        (lambda *given: given[-1], [1, "opus"], "opus"),
        (None, [1], None),
    ],
)
def test_a_routing_key_comes_from_the_arguments(rule: Any, args: list[Any], key: str | None) -> None:
    found = asked(lambda: workflow.start_activity(_keyed(rule), args=args))
    assert found.get("routing_key") == key


@pytest.mark.parametrize("given", ["eu", Model.OPUS, None])
def test_a_key_that_the_call_gives_wins_also_if_it_is_none(given: Any) -> None:
    found = asked(lambda: workflow.start_activity(_keyed("model"), Job("other"), routing_key=given))
    assert found.get("routing_key") == (given if given is None else str(given))


@pytest.mark.parametrize(
    ("rule", "args", "told"),
    [
        ("modle", [Job("opus")], "its routing key is 'modle', and Job has no 'modle'. Did you mean 'model'?"),
        ("model.name", [{"model": None}], "NoneType has no 'name'"),
        ("model", [{"model": 3}], "text, an Enum of texts or None, not 3"),
        ("model", [{"model": Size.LARGE}], "not Size with the value 3"),
        ("model", [{"model": "x" * 1001}], "at most 1000 characters"),
        ("model", [{"model": "a\0b"}], "without NUL and halves of pairs, not 'a\\x00b'"),
        ("model", [{"model": "\ud800"}], "without NUL and halves of pairs, not '\\ud800'"),
        (lambda job, model: job.nothing, [1], "AttributeError: 'int' object has no attribute 'nothing'"),
    ],
)
def test_arguments_that_give_no_key_are_a_mistake_of_the_workflow(
    rule: Any, args: list[Any], told: str
) -> None:
    with pytest.raises(RoutingKeyError) as refusal:
        asked(lambda: workflow.start_activity(_keyed(rule), args=args))
    assert 'activity "act": ' in str(refusal.value)
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"routing_key": ""}, "a path of names"),
        ({"routing_key": "job..model"}, "a path of names"),
        ({"routing_key": 3}, "not int"),
        (
            {"routing_key": activity.arg("modle")},
            "has no parameter 'modle' for its routing key; it takes job, model",
        ),
        ({"routing_key": activity.arg("modle")}, "Did you mean 'model'?"),
        ({"routing_key": lambda: "x"}, "called with the arguments (job, model)"),
        ({"tags": "gpu"}, "a set of texts"),
        ({"tags": {""}}, "a tag is 1 to 255"),
        ({"tags": {3}}, "a tag is text"),
        ({"pack": " x"}, "pack is 1 to 255"),
        ({"start_to_close_timeout": 5}, "start_to_close_timeout is a timedelta"),
        ({"heartbeat_timeout": timedelta(0)}, "heartbeat_timeout must be longer than nothing"),
        ({"retry_policy": 3}, "retry_policy is a RetryPolicy"),
    ],
)
def test_what_an_activity_cannot_be_told_is_refused_where_it_is_decorated(options: Json, told: str) -> None:
    async def act(job: Any, model: str = "usual") -> None: ...

    with pytest.raises((TypeError, ValueError)) as refusal:
        activity.defn(**options)(act)
    assert told in str(refusal.value)


def test_tags_and_packs_are_kept_for_scopes() -> None:
    @activity.defn(tags=["gpu", "slow"], pack="images")
    async def draw() -> None: ...

    @workflow.defn(pack="billing")
    class Bill:
        @workflow.run
        async def run(self) -> None: ...

    found = activity.ActivityDefinition.must_be(draw)
    assert (found.tags, found.pack) == (frozenset({"gpu", "slow"}), "images")
    assert WorkflowDefinition.of(Bill).pack == "billing"
    with pytest.raises(ValueError, match=r"the pack of .* is text, not int"):
        workflow.defn(pack=3)(Bill)  # type: ignore[call-overload]


def test_a_task_of_an_app_has_key_tags_and_pack_too() -> None:
    app = Penstock("shop")

    @app.task(name="generate", routing_key=activity.arg("model"), tags={"gpu"}, pack="images")
    async def draw(prompt: str, model: str) -> str:
        return prompt

    found = activity.ActivityDefinition.must_be(draw)
    assert (found.tags, found.pack) == (frozenset({"gpu"}), "images")
    said = asked(lambda: workflow.start_activity(draw, args=["a cat", "opus"]), routes())
    assert (said["queue"], said["routing_key"]) == ("anthropic", "opus")


def test_a_method_of_a_class_has_a_key_too() -> None:
    class Models:
        @activity.defn(routing_key="model")
        async def ask(self, job: Job) -> str:
            return job.model

        @classmethod
        @activity.defn(routing_key=lambda text: text)
        def count(cls, text: str) -> int:
            return len(text)

    found = asked(lambda: workflow.start_activity_method(Models.ask, Job("opus")))
    assert found["routing_key"] == "opus"
    assert asked(lambda: workflow.start_activity(Models.count, "eu"))["routing_key"] == "eu"


# ── the trace ───────────────────────────────────────────────────────────────────────────────────────────────

TRACED = {"temporal_config": {"temporal_log_config": {"is_dispatch_resolution_traced": True}}}


@workflow.defn
class Twice:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(generate, Job("opus"))
        await workflow.execute_activity(generate, Job("sonnet"))


Running = Callable[[ConfigGetter], WorkflowRun]


@pytest.fixture
def running() -> Iterator[Running]:
    """Runs of `Twice` under a configuration, evicted at the end."""
    runs: list[WorkflowRun] = []

    def begin(dispatch: ConfigGetter) -> WorkflowRun:
        runs.append(a_run(Twice, dispatch=dispatch))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def _traces(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "penstock.dispatch"]


def _after_the_first() -> Story:
    said = {"activity_type": "generate", "sequence": 1}
    return Story().decided(("ActivityScheduled", said)).then("ActivityCompleted", **said, result=None)


def test_each_scheduled_activity_is_traced_once_and_not_in_replay(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.dispatch")
    config = routes(**TRACED)
    run = running(lambda: config)
    run.activate(Story().events)
    assert [record.getMessage().splitlines()[0] for record in _traces(caplog)] == [
        "dispatch  generate  routing_key=opus"
    ]
    told = _traces(caplog)[0].dispatch  # type: ignore[attr-defined]
    assert told["sources"]["task_queue"] == "activity_queues.by_handle"
    assert told["fingerprint"] == config.fingerprint
    caplog.clear()
    running(lambda: config).activate(_after_the_first().events)
    assert [record.dispatch["routing_key"] for record in _traces(caplog)] == ["sonnet"]  # type: ignore[attr-defined]


@workflow.defn
class ByHand:
    """Resolves the options of its calls itself."""

    @workflow.run
    async def run(self) -> None:
        config = routes(**TRACED)
        for key in ("opus", "sonnet"):
            found = config.worker_config.resolve_dispatch(
                "generate", key, config.queue_options, is_traced=True
            )
            await workflow.execute_activity(generate, arg=Job(key), **found.to_execute_kwargs())


@pytest.mark.parametrize("own", [None, routes(**TRACED)], ids=["alone", "with a configuration, too"])
def test_options_that_the_code_resolves_are_traced_once_and_not_again_in_replay(
    caplog: pytest.LogCaptureFixture, own: DispatchConfig | None
) -> None:
    caplog.set_level(logging.INFO, "penstock.dispatch")
    found = Replayer(workflows=[ByHand], dispatch=own).replay(
        {"workflow_type": "ByHand", "events": _after_the_first().events}
    )
    assert found.failure is None
    (record,) = _traces(caplog)
    assert "routing_key=sonnet" in record.getMessage()
    assert "call site" not in record.getMessage()


def test_options_that_are_resolved_once_and_used_twice_are_traced_for_each_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock.dispatch")
    config = routes(**TRACED)

    def call() -> None:
        kwargs = config.resolve("generate", "opus").to_execute_kwargs()
        for _ in range(2):
            workflow.start_activity(generate, Job("opus"), **kwargs)

    asked(call, config)
    one, other = _traces(caplog)
    assert one.getMessage() == other.getMessage()


def test_nothing_is_traced_for_a_query_or_unless_it_is_asked_for(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.dispatch")
    traced = routes(**TRACED)
    running(lambda: traced).replay_to_end(_after_the_first().events)
    silent = routes()
    running(lambda: silent).activate(Story().events)
    assert not _traces(caplog)


def test_code_that_fails_after_a_call_has_scheduled_nothing_and_traces_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock.dispatch")

    def call() -> None:
        workflow.start_activity(generate, Job("opus"))
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        asked(call, routes(**TRACED))
    assert not _traces(caplog)


# ── replay under another configuration ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("changed", [{}, {"queue_options": {}}, {"worker_config": {}}])
def test_a_configuration_that_changed_breaks_no_replay_and_holds_for_what_comes(changed: Json) -> None:
    config = dispatch_from(ROUTES | changed)
    found = Replayer(workflows=[Twice], dispatch=config).replay(
        {"workflow_type": "Twice", "events": _after_the_first().events}
    )
    assert found.failure is None
    (command,) = found.next.commands
    assert command["dispatch"]["fingerprint"] == config.fingerprint


def test_a_mistake_that_the_code_caught_is_caught_again_in_replay() -> None:
    @workflow.defn
    class Careful:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.execute_activity(generate, {"no": "model"})  # type: ignore[arg-type]
            except RoutingKeyError:
                await workflow.execute_activity(other, "instead")

    said = {"activity_type": "other", "sequence": 1}
    story = Story().decided(("ActivityScheduled", said)).then("ActivityCompleted", **said, result=None)
    found = Replayer(workflows=[Careful], dispatch=routes()).replay(
        {"workflow_type": "Careful", "events": story.events}
    )
    assert found.failure is None


def test_a_run_that_is_kept_sees_the_configuration_that_is_in_force(running: Running) -> None:
    in_force = [routes()]
    run = running(lambda: in_force[-1])
    assert run.activate(Story().events).commands[0]["queue"] == "anthropic"
    in_force.append(dispatch_from({"worker_config": {"default_activity_start_to_close_timeout": 3}}))
    (command,) = run.activate(_after_the_first().events[1:]).commands
    assert (command.get("queue"), command["start_to_close_timeout"]) == (None, 3)


def test_a_thousand_calls_resolve_in_the_time_of_one() -> None:
    config = routes()
    first = resolve_options("generate", "opus", {}, config=config)
    assert all(
        resolve_options("generate", "opus", {}, config=config).retry_policy is first.retry_policy
        for _ in range(9)
    )
