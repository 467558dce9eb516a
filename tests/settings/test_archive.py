"""Where histories are archived, and what they are signed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.settings import Settings, load


def read(**given: str) -> Settings:
    return load({"DW_AUTH_DRIVER": "none"} | {f"DW_{name.upper()}": value for name, value in given.items()})


def test_nothing_is_archived_or_signed_unless_it_is_asked_for() -> None:
    settings = read()
    assert (settings.archive_dir, settings.export_key) == (None, None)


@pytest.mark.parametrize("text", ["/var/lib/archive", "file:///var/lib/archive"])
def test_a_directory_is_named_by_its_path_or_as_a_url(text: str) -> None:
    assert read(archive_dir=text).archive_dir == Path("/var/lib/archive")


@pytest.mark.parametrize(
    "text", ["archive", "./archive", "s3://bucket/archive", "file://host/archive", "https://a/b"]
)
def test_anything_else_is_refused_when_the_server_starts(text: str) -> None:
    with pytest.raises(ConfigurationError, match="DW_ARCHIVE_DIR must be the whole path of a directory"):
        read(archive_dir=text)


def test_the_key_of_exports_is_a_secret() -> None:
    settings = read(export_signature_key="a key that nobody sees")
    assert settings.export_key is not None
    assert settings.export_key.reveal() == "a key that nobody sees"
    assert "nobody sees" not in repr(settings)
    shown = {reading.name: reading.shown for reading in settings.readings}
    assert "nobody" not in str(shown["DW_EXPORT_SIGNATURE_KEY"])
