"""External storage: the same promises from a directory and from a real S3-compatible server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidInput, Unavailable
from penstock.ports.objects import ObjectMissing, ObjectStorage
from penstock.settings import ExternalStorageLimits
from penstock.stores.objects.drivers import Drivers
from tests.support.s3 import CREDENTIALS, S3Server, s3_server

KEY = "shop/AB/ep_1"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as made:
        yield made


def opened(folder: Path, driver: str, config: dict[str, str], *endpoints: str) -> ObjectStorage:
    limits = ExternalStorageLimits(folder, frozenset(endpoints))
    return Drivers(limits, CREDENTIALS).open(json.dumps({"driver": driver, "config": config}))


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server) -> ObjectStorage:
    if request.param == "local":
        return opened(tmp_path, "local", {"uri": "a/b"})
    return opened(tmp_path, "s3", s3.config, s3.url)


async def test_an_object_is_read_as_it_was_written_and_is_gone_when_deleted(storage: ObjectStorage) -> None:
    data = os.urandom(3_000_000)
    await storage.put(KEY, data)
    assert await storage.get(KEY, len(data)) == data
    await storage.delete(KEY)
    with pytest.raises(ObjectMissing):
        await storage.get(KEY, len(data))
    await storage.delete(KEY)


async def test_an_object_that_grew_is_not_read_whole(storage: ObjectStorage) -> None:
    await storage.put(KEY, b"x" * 1000)
    assert len(await storage.get(KEY, 10)) == 11


async def test_an_object_may_be_written_again(storage: ObjectStorage) -> None:
    for data in (b"one", b"two"):
        await storage.put(KEY, data)
    assert await storage.get(KEY, 10) == b"two"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"uri": "../out"}, "must lie below"),
        ({"uri": "/etc"}, "must lie below"),
        ({"uri": "file:///etc"}, "must lie below"),
        ({"uri": "file://elsewhere/x"}, "of this machine"),
        ({"uri": "http://169.254.169.254/"}, "of this machine"),
        ({"uri": "link"}, "must lie below"),
        ({"bucket": "x"}, "config.bucket means nothing"),
    ],
)
def test_a_policy_cannot_point_outside_of_the_operators_directory(
    tmp_path: Path, config: dict[str, str], told: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("/etc")
    with pytest.raises(InvalidInput, match=told) as refused:
        opened(root, "local", config)
    assert refused.value.reason == "storage_driver_unavailable"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"endpoint": "http://169.254.169.254"}, "DW_EXTERNAL_STORAGE_ENDPOINTS"),
        ({"endpoint": "http://127.0.0.1:1@evil.example"}, "DW_EXTERNAL_STORAGE_ENDPOINTS"),
        ({"bucket": "../up"}, "name of a bucket"),
        ({"prefix": "a/../../b"}, "without empty parts"),
        ({"auth_profile": "DW_ADMIN_TOKEN\n"}, "auth_profile must be"),
        ({"auth_profile": "nobody"}, "STORAGE_NOBODY_ACCESS_KEY_ID"),
        ({"uri": "/x"}, "config.uri means nothing"),
    ],
)
def test_a_policy_cannot_point_to_another_service_or_name_a_secret(
    tmp_path: Path, s3: S3Server, change: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        opened(tmp_path, "s3", s3.config | change, s3.url)


def test_without_a_directory_of_the_operator_there_is_no_local_driver() -> None:
    with pytest.raises(InvalidInput, match="DW_EXTERNAL_STORAGE_DIR is not set"):
        Drivers(ExternalStorageLimits(), {}).open('{"driver":"local","config":{}}')
    with pytest.raises(InvalidInput, match="has no driver 'gcs'"):
        Drivers(ExternalStorageLimits(), {}).open('{"driver":"gcs","config":{}}')


async def test_a_directory_that_refuses_writes_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    storage = opened(tmp_path, "local", {})
    (tmp_path / "shop").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be written: ") as refused:
        await storage.put(KEY, b"x")
    assert refused.value.reason == "external_payload_unavailable"
    assert [each.name for each in tmp_path.rglob("*")] == ["shop"]


async def test_a_full_device_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write of the last byte fails as on a full disk: with the limit that the system puts on file sizes."""
    import resource
    import signal

    storage = opened(tmp_path, "local", {})
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(Unavailable, match="cannot be written: file too large"):
            await storage.put(KEY, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize(
    ("credentials", "bucket", "told"),
    [
        ({"STORAGE_TESTS_SECRET_ACCESS_KEY": "wrong"}, None, "refused the credentials"),
        ({}, "no-such-bucket", "no such bucket"),
    ],
)
async def test_wrong_credentials_and_buckets_are_named(
    tmp_path: Path, s3: S3Server, credentials: dict[str, str], bucket: str | None, told: str
) -> None:
    drivers = Drivers(ExternalStorageLimits(None, frozenset({s3.url})), CREDENTIALS | credentials)
    config = s3.config | ({"bucket": bucket} if bucket else {})
    with pytest.raises(Unavailable, match=told) as refused:
        await drivers.open(json.dumps({"driver": "s3", "config": config})).put(KEY, b"x")
    assert "wrong" not in refused.value.message


async def test_a_service_that_is_down_is_named(tmp_path: Path) -> None:
    gone = S3Server(tmp_path)
    storage = opened(tmp_path, "s3", gone.config, gone.url)
    with pytest.raises(Unavailable) as refused:
        await storage.put(KEY, b"x")
    assert refused.value.reason == "external_payload_unavailable"
