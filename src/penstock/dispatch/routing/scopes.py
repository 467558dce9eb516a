"""Which workflows and activities one worker registers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.dispatch.problems import (
    WorkerNothingToDoError,
    WorkerScopeEmptyError,
    WorkerScopeUnknownError,
    unknown,
)
from penstock.dispatch.routing.models import Profile
from penstock.schema.nearest import Suggestions
from penstock.schema.problems import Problem, hint_towards


@dataclass(frozen=True, slots=True)
class Member:
    """A workflow or an activity of the program, with its pack and its tags."""

    name: str
    pack: str | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Selection:
    """The names that a scope leaves."""

    workflows: tuple[str, ...]
    activities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker with this profile and selection polls for, with warnings and notes."""

    polls_workflows: bool
    polls_activities: bool
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """A named selection of code to register: packs and tags, plus required names, minus excluded ones."""

    name: str
    required_tasks_packs: tuple[str, ...] = ()
    required_workflows: tuple[str, ...] = ()
    required_activities: tuple[str, ...] = ()
    excluded_workflows: tuple[str, ...] = ()
    excluded_activities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    disable_all_workflows: bool = False
    disable_all_activities: bool = False
    is_preset: bool = False
    """A preset skips names that the program lacks; a scope of the file is strict."""
    is_by_tag: bool = False
    """Undeclared: `runner-<x>` selects all activities with the tag `<x>`."""
    known_scopes: tuple[str, ...] = ()

    def select(self, workflows: Iterable[Member | str], activities: Iterable[Member | str]) -> Selection:
        """The names to register. Raises an error that lists every unknown name."""
        flows, acts = _members(workflows), _members(activities)
        self._check(flows, acts)
        chosen = Selection(
            self._chosen(flows, self.required_workflows, self.excluded_workflows, self.disable_all_workflows),
            self._chosen(
                acts, self.required_activities, self.excluded_activities, self.disable_all_activities
            ),
        )
        if not chosen.workflows and not chosen.activities:
            raise WorkerScopeEmptyError([Problem("", self._empty())])
        return chosen

    def _chosen(
        self, members: list[Member], required: tuple[str, ...], excluded: tuple[str, ...], is_off: bool
    ) -> tuple[str, ...]:
        if is_off:
            return ()
        return tuple(
            member.name
            for member in members
            if (self._has(member) or _any_match(member.name, required))
            and not _any_match(member.name, excluded)
        )

    def _has(self, member: Member) -> bool:
        in_pack = member.pack is not None and member.pack in self.required_tasks_packs
        return in_pack or ALL in self.required_tasks_packs or not member.tags.isdisjoint(self.tags)

    def _check(self, workflows: list[Member], activities: list[Member]) -> None:
        tags = {tag for member in (*workflows, *activities) for tag in member.tags}
        if self.is_by_tag and not tags.issuperset(self.tags):
            raise WorkerScopeUnknownError([unknown("scope", self.name, self.known_scopes, "scopes")])
        if self.is_preset or self.is_by_tag:
            return
        packs = {member.pack for member in (*workflows, *activities) if member.pack} | {ALL}
        flow_names = [member.name for member in workflows]
        act_names = [member.name for member in activities]
        problems = [
            *self._strangers("required_tasks_packs", packs),
            *self._strangers("tags", tags),
            *self._strangers("required_workflows", flow_names),
            *self._strangers("excluded_workflows", flow_names),
            *self._strangers("required_activities", act_names),
            *self._strangers("excluded_activities", act_names),
        ]
        if problems:
            raise WorkerScopeUnknownError(problems)

    def _strangers(self, table: str, known: Iterable[str]) -> list[Problem]:
        names = sorted(known)
        given: tuple[str, ...] = getattr(self, table)
        suggest = Suggestions()
        return [
            Problem(
                f"worker_scopes.scopes.{self.name}.{table}",
                f"{word!r} is not in the program; known: {names!r}",
                hint_towards(word, names, suggest),
            )
            for word in given
            if not any(fnmatchcase(name, word) for name in names)
        ]

    def _empty(self) -> str:
        wanted = [*self.required_tasks_packs, *self.tags, *self.required_workflows, *self.required_activities]
        looked = f" It looked for {', '.join(map(repr, wanted))}." if wanted and ALL not in wanted else ""
        return f"scope {self.name!r} selects nothing of this program.{looked}"


ALL = "*"
"""As a pack: everything."""


def plan(profile: Profile, selection: Selection) -> Plan:
    """What will be polled for; `WorkerNothingToDoError` if nothing would be."""
    has_slots = profile.max_concurrent_activities > 0
    polls_activities = has_slots and bool(selection.activities)
    polls_workflows = bool(selection.workflows)
    if not polls_activities and not polls_workflows:
        raise WorkerNothingToDoError(
            [
                Problem(
                    "",
                    f"nothing to do: profile {profile.name!r} has no activity slots,"
                    " and the scope registers no workflow.",
                )
            ]
        )
    warnings: list[str] = []
    notes: list[str] = []
    if selection.activities and not has_slots:
        never = ", ".join(selection.activities)
        warnings.append(
            f"profile {profile.name!r} has no activity slots; registered but never polled: {never}"
        )
    if has_slots and not selection.activities:
        notes.append(
            f"the {profile.max_concurrent_activities} activity slots stay idle: no activity registered"
        )
    return Plan(polls_workflows, polls_activities, tuple(warnings), tuple(notes))


def by_tag(name: str, known: Iterable[str]) -> Scope | None:
    """The scope of an undeclared `runner-<x>`."""
    prefix, _, tag = name.partition("-")
    if prefix != "runner" or not tag:
        return None
    return Scope(
        name, tags=(tag,), disable_all_workflows=True, is_by_tag=True, known_scopes=tuple(sorted(known))
    )


def _preset(name: str, *activities: str) -> Scope:
    """Activities by the names they have in AI pipelines, and whatever carries the tag."""
    tag = name.removeprefix("runner-")
    return Scope(
        name, required_activities=activities, tags=(tag,), disable_all_workflows=True, is_preset=True
    )


BUILT_IN = {
    scope.name: scope
    for scope in (
        Scope("full", required_tasks_packs=(ALL,), is_preset=True),
        Scope("router", required_tasks_packs=(ALL,), disable_all_activities=True, is_preset=True),
        Scope("runner", required_tasks_packs=(ALL,), disable_all_workflows=True, is_preset=True),
        _preset("runner-llm", "act_llm_gen_text", "act_llm_gen_object", "act_llm_gen_object_list"),
        _preset("runner-img-gen", "act_img_gen_images", "act_render_page_views"),
        _preset("runner-extract", "act_extract_gen_extract_pages", "act_render_page_views"),
        _preset("runner-jinja2", "act_jinja2_gen_text"),
        _preset("runner-search", "act_search_gen_sourced_answer", "act_search_gen_structured"),
    )
}


def _members(given: Iterable[Member | str]) -> list[Member]:
    return [Member(each) if isinstance(each, str) else each for each in given]


def _any_match(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
