"""The kinds of value a setting may have: what each expects, how it is read and how it is shown."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from penstock.settings.types.addresses import Network, parse_host, parse_network
from penstock.settings.types.database_url import FORMS, StoreLocation, parse_database_url
from penstock.settings.types.invalid_value import InvalidValue, quoted
from penstock.settings.types.json_text import JsonMembers, parse_object
from penstock.settings.types.redis_url import FORMS as REDIS_FORMS
from penstock.settings.types.redis_url import RedisLocation, parse_redis_url
from penstock.settings.types.secret import Secret

_WHOLE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9._-]{1,128}", re.ASCII)
_VISIBLE_ASCII = re.compile(r"[!-~]+", re.ASCII)
_FLAGS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_TEXT_LENGTH_MAX = 4096


class SettingKind(ABC):
    """One kind of value. `toml_types` lists the TOML types that it accepts besides text."""

    __slots__ = ()
    toml_types: ClassVar[tuple[type, ...]] = (str,)
    may_be_empty: ClassVar[bool] = False

    @property
    @abstractmethod
    def expects(self) -> str:
        """What would be right, as it follows "must be"."""

    @abstractmethod
    def parse(self, text: str) -> object:
        """The value of the text, or `InvalidValue`."""

    def show(self, value: object) -> str:
        """The value as an operator may see it."""
        return str(value)

    def refuse(self, text: str) -> InvalidValue:
        return InvalidValue(f"must be {self.expects}, not {quoted(text)}")


@dataclass(frozen=True, slots=True)
class IntegerKind(SettingKind):
    """A whole number between two bounds, both allowed."""

    toml_types: ClassVar[tuple[type, ...]] = (int, str)

    minimum: int
    maximum: int
    unit: str = ""

    @property
    def expects(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        return f"a whole number{unit} from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text) or not self.minimum <= int(text) <= self.maximum:
            raise self.refuse(text)
        return int(text)


@dataclass(frozen=True, slots=True)
class FlagKind(SettingKind):
    """Yes or no."""

    toml_types: ClassVar[tuple[type, ...]] = (bool, int, str)

    @property
    def expects(self) -> str:
        return "true or false (or 1/0, yes/no, on/off)"

    def parse(self, text: str) -> bool:
        if (value := _FLAGS.get(text.lower())) is None:
            raise self.refuse(text)
        return value

    def show(self, value: object) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class ChoiceKind(SettingKind):
    """A member of an enum."""

    words: type[StrEnum]

    @property
    def expects(self) -> str:
        *first, last = [word.value for word in self.words]
        return f"{', '.join(first)} or {last}"

    def parse(self, text: str) -> StrEnum:
        try:
            return self.words(text.lower())
        except ValueError:
            raise self.refuse(text) from None


@dataclass(frozen=True, slots=True)
class WordKind(SettingKind):
    """Visible ASCII characters without spaces, up to a length."""

    length_max: int

    @property
    def expects(self) -> str:
        return f"1 to {self.length_max} visible ASCII characters without spaces"

    def parse(self, text: str) -> str:
        if len(text) > self.length_max or not _VISIBLE_ASCII.fullmatch(text):
            raise self.refuse(text)
        return text


@dataclass(frozen=True, slots=True)
class FilePathKind(SettingKind):
    """The path of a file."""

    @property
    def expects(self) -> str:
        return "the path of a file"

    def parse(self, text: str) -> str:
        if not text.isprintable() or len(text) > _TEXT_LENGTH_MAX:
            raise self.refuse(text)
        return text


@dataclass(frozen=True, slots=True)
class DirectoryKind(SettingKind):
    """A directory of this machine, by its whole path."""

    @property
    def expects(self) -> str:
        return (
            "the whole path of a directory, also written as file:///path; nothing else can be written to yet"
        )

    def parse(self, text: str) -> Path:
        path = text.removeprefix("file://")
        if not path.startswith("/") or not path.isprintable() or len(path) > _TEXT_LENGTH_MAX:
            raise self.refuse(text)
        return Path(path)


@dataclass(frozen=True, slots=True)
class NamespaceKind(SettingKind):
    """A namespace, normalised to lower case as every namespace is."""

    @property
    def expects(self) -> str:
        return "1 to 128 letters, digits, dots, underscores or dashes"

    def parse(self, text: str) -> str:
        name = text.lower()
        if not _NAMESPACE.fullmatch(name) or name in (".", ".."):
            raise self.refuse(text)
        return name


@dataclass(frozen=True, slots=True)
class HostKind(SettingKind):
    """A host name or an address to listen on."""

    @property
    def expects(self) -> str:
        return "a host name or an address without a port"

    def parse(self, text: str) -> str:
        return parse_host(text)


@dataclass(frozen=True, slots=True)
class HostListKind(SettingKind):
    """A list of host names and addresses."""

    toml_types: ClassVar[tuple[type, ...]] = (list, str)
    may_be_empty: ClassVar[bool] = True

    @property
    def expects(self) -> str:
        return "a comma-separated list of host names or addresses without ports"

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(parse_host(item) for item in _items(text)))

    def show(self, value: object) -> str:
        return _joined(value)


@dataclass(frozen=True, slots=True)
class NetworkListKind(SettingKind):
    """A list of addresses and CIDR blocks."""

    toml_types: ClassVar[tuple[type, ...]] = (list, str)
    may_be_empty: ClassVar[bool] = True

    @property
    def expects(self) -> str:
        return "a comma-separated list of addresses or CIDR blocks"

    def parse(self, text: str) -> tuple[Network, ...]:
        return tuple(dict.fromkeys(parse_network(item) for item in _items(text)))

    def show(self, value: object) -> str:
        return _joined(value)


@dataclass(frozen=True, slots=True)
class DatabaseUrlKind(SettingKind):
    """The URL of a store; it may hold a password, so that it is never shown as given."""

    @property
    def expects(self) -> str:
        return FORMS

    def parse(self, text: str) -> StoreLocation:
        return parse_database_url(text)

    def show(self, value: object) -> str:
        assert isinstance(value, StoreLocation)
        return value.shown


@dataclass(frozen=True, slots=True)
class RedisUrlKind(SettingKind):
    """The URL of a Redis; it may hold a password, so that it is never shown as given."""

    @property
    def expects(self) -> str:
        return REDIS_FORMS

    def parse(self, text: str) -> RedisLocation:
        return parse_redis_url(text)

    def show(self, value: object) -> str:
        assert isinstance(value, RedisLocation)
        return value.shown


@dataclass(frozen=True, slots=True)
class JsonObjectKind(SettingKind):
    """A JSON object, whose content is checked later."""

    holds: str

    @property
    def expects(self) -> str:
        return f"a JSON object of {self.holds}"

    def parse(self, text: str) -> JsonMembers:
        return parse_object(text)

    def show(self, value: object) -> str:
        assert isinstance(value, dict)
        return "1 key" if len(value) == 1 else f"{len(value)} keys"


@dataclass(frozen=True, slots=True)
class AuthTokenKind(SettingKind):
    """A bearer token: it must fit into an HTTP header."""

    @property
    def expects(self) -> str:
        return "one line of visible ASCII characters without spaces"

    def parse(self, text: str) -> Secret:
        if len(text) > _TEXT_LENGTH_MAX or not _VISIBLE_ASCII.fullmatch(text):
            raise InvalidValue(f"must be {self.expects} (at most {_TEXT_LENGTH_MAX})")
        return Secret(text)


@dataclass(frozen=True, slots=True)
class SigningKeyKind(SettingKind):
    """A key for HMAC: any text of one line."""

    @property
    def expects(self) -> str:
        return "one line of printable text"

    def parse(self, text: str) -> Secret:
        if len(text) > _TEXT_LENGTH_MAX or not text.isprintable():
            raise InvalidValue(f"must be {self.expects} (at most {_TEXT_LENGTH_MAX} characters)")
        return Secret(text)


def _items(text: str) -> list[str]:
    """The parts between commas. A part that is empty is a slip (`a,,b`), except in an empty list."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _joined(value: object) -> str:
    assert isinstance(value, tuple)
    return ", ".join(str(item) for item in value)
