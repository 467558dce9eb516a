"""A command of the contract as one of ours: its spellings, declared as data.

An alias changes how a command is written, never what it does: flags get further spellings, options may be given as
words, parameters get fixed values. The callback and its output are those of our command. A spelling that the contract
uses for another parameter is taken from the one that has it with us (`-t` is the type, not the task queue).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from penstock.cli.contract.session import ContractSession, output_options, server_options
from penstock.cli.grammar import CommandReach, VerbCommand
from penstock.cli.transport.session import ConnectionOption

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Translation:
    """Options that we do not have, and how their values become those of ours."""

    options: tuple[click.Option, ...]
    apply: Callable[[Values], None]
    as_text: tuple[str, ...] = ()
    """Parameters that the translation converts itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAlias:
    """Which command of ours carries out one of the contract, and what is spelled differently."""

    ours: str
    flags: Mapping[str, str] = field(default_factory=dict)
    """Spellings of the contract, with the parameter that each is for."""
    words: tuple[str, ...] = ()
    """Options that may also be given as arguments, in this order."""
    resource: str = ""
    """A word that must come first, such as `workflow` in `dw debug workflow ID`."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    also: tuple[Translation, ...] = ()
    unused: tuple[str, ...] = ()
    """Options that are accepted and change nothing here; one with a value is written `--page-size N`."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Options that are refused, with what to use instead."""
    instead: Mapping[str, CommandAlias] = field(default_factory=dict)
    """Options, as in `--follow/-f`, with which another command of ours is meant."""
    differs: str = ""
    """What is different on purpose, for the reference page."""

    def meant_by(self, args: list[str]) -> CommandAlias:
        """The alias for these arguments: this one, or the one that an option selects."""
        given = {arg.partition("=")[0] for arg in args}
        return next((each for flags, each in self.instead.items() if given & {*flags.split("/")}), self)


class ContractCommand(VerbCommand):
    """One of our commands under the contract's spelling."""

    def __init__(self, name: str, source: VerbCommand, alias: CommandAlias) -> None:
        self.alias = alias
        self._needed = {param.name for param in source.params if param.required}
        self.connects = any(
            isinstance(each, ConnectionOption) and each.name == "server" for each in source.params
        )
        params = spelled(source.params, alias, connects=self.connects)
        super().__init__(
            name, params=params, callback=source.callback, help=source.help, example=source.example,
            reach=CommandReach.TEXT,
        )  # fmt: skip

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(ContractSession)
        session.settle(connects=self.connects)
        self._fill_in(ctx)
        return super().invoke(ctx)

    def _fill_in(self, ctx: click.Context) -> None:
        """Make the values those that the callback of our command takes."""
        values = ctx.params
        for name in self.alias.words:
            word = values.pop(_word(name))
            values[name] = word if word is not None else values[name]
            if values[name] is None and name in self._needed:
                raise click.MissingParameter(ctx=ctx, param_hint=name, param_type="argument")
        values.update(self.alias.fixed)
        for each in self.alias.also:
            each.apply(values)


def spelled(params: list[click.Parameter], alias: CommandAlias, *, connects: bool) -> list[click.Parameter]:
    """The parameters of a command of ours, as the contract spells them."""
    as_text = {name for each in alias.also for name in each.as_text}
    own = [copy.copy(param) for param in params if param.name not in alias.fixed]
    shared = [*output_options(own), *(server_options() if connects else [])]
    extra: list[click.Parameter] = [copy.copy(option) for each in alias.also for option in each.options]
    flags = {**alias.flags, **({"-s": "server"} if connects else {})}
    taken = {spelling for param in (*shared, *extra) for spelling in param.opts} | set(flags)
    for param in own:
        param.opts = [spelling for spelling in param.opts if spelling not in taken]
        param.opts += [spelling for spelling, name in flags.items() if name == param.name]
        if param.name in alias.defaults:
            param.default = alias.defaults[param.name]
        if param.name in as_text:
            param.type = click.STRING
    leading = [_resource(alias.resource)] if alias.resource else []
    return [*leading, *own, *_words(own, alias.words), *extra, *_inert(alias), *shared]


def _words(own: list[click.Parameter], names: tuple[str, ...]) -> Iterator[click.Argument]:
    by_name = {param.name: param for param in own}
    for name in names:
        option = by_name[name]
        option.required = False
        metavar = option.opts[0].lstrip("-").upper()
        yield click.Argument([_word(name)], type=option.type, required=False, metavar=metavar)


def _word(name: str) -> str:
    return f"{name}_word"


def _resource(word: str) -> click.Argument:
    return click.Argument(["resource"], type=click.Choice([word]), metavar=word, expose_value=False)


def _inert(alias: CommandAlias) -> Iterator[click.Option]:
    for written in alias.unused:
        yield _inert_option(written, help="Changes nothing here.")
    for written, instead in alias.refused.items():
        yield _inert_option(written, callback=_refusal(instead), hidden=True)


def _inert_option(written: str, **attributes: Any) -> click.Option:
    """An option written as in help: `--limit/-l N`, or without a value `--yes`."""
    spellings, _, metavar = written.partition(" ")
    return click.Option(
        spellings.split("/"), is_flag=not metavar, metavar=metavar or None, expose_value=False, **attributes
    )


def _refusal(instead: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def refuse(_ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            raise click.UsageError(f"{param.opts[0]} is not there: {instead}")

    return refuse
