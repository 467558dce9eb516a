"""The kinds of value that settings have beside those of `schema.kinds`, as data."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.schema.kinds import Text, TextList
from penstock.settings.types.addresses import HOST_FORM, parse_host, parse_network
from penstock.settings.types.database_url import FORMS, parse_database_url
from penstock.settings.types.redis_url import FORMS as REDIS_FORMS
from penstock.settings.types.redis_url import parse_redis_url
from penstock.settings.types.secret import Secret

_LENGTH_MAX = 4096
_ANY = re.compile("(?s).*")
_VISIBLE_ASCII = re.compile(r"[!-~]+", re.ASCII)
_NAMESPACE = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}", re.ASCII)


def word(length_max: int) -> Text:
    return Text(f"1 to {length_max} visible ASCII characters without spaces", _VISIBLE_ASCII, length_max)


def _directory(text: str) -> Path:
    return Path(text.removeprefix("file://"))


FILE_PATH = Text("the path of a file", _ANY, _LENGTH_MAX, is_printable=True)
DIRECTORY = Text(
    "the whole path of a directory, also written as file:///path; nothing else can be written to yet",
    re.compile("(file://)?/.*"),
    _LENGTH_MAX,
    is_printable=True,
    convert=_directory,
)
NAMESPACE = Text("1 to 128 letters, digits, dots, underscores or dashes", _NAMESPACE, convert=str.lower)
HOST = Text(HOST_FORM, _ANY, convert=parse_host)
HOSTS = TextList("a comma-separated list of host names or addresses without ports", HOST, is_set=True)
NETWORKS = TextList(
    "a comma-separated list of addresses or CIDR blocks",
    Text(pattern=_ANY, convert=parse_network),
    is_set=True,
)
ORIGINS = TextList(
    "a comma-separated list of addresses such as https://s3.example.com",
    Text(
        "an address such as https://s3.example.com",
        re.compile(r"https?://[A-Za-z0-9.\[\]:-]+/?", re.ASCII),
        _LENGTH_MAX,
        convert=lambda text: text.rstrip("/"),
    ),
    is_set=True,
)
DATABASE_URL = Text(FORMS, _ANY, convert=parse_database_url)
REDIS_URL = Text(REDIS_FORMS, _ANY, convert=parse_redis_url)
AUTH_TOKEN = Text(
    "one line of visible ASCII characters without spaces",
    _VISIBLE_ASCII,
    _LENGTH_MAX,
    is_secret=True,
    convert=Secret,
)
SIGNING_KEY = Text(
    "one line of printable text", _ANY, _LENGTH_MAX, is_printable=True, is_secret=True, convert=Secret
)
