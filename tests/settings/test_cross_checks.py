"""What no single setting can get wrong alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError, InvalidInput
from penstock.server.request_reader import check_host
from penstock.settings import load
from penstock.settings.checks import SAMPLE_SECRETS
from penstock.settings.types.addresses import is_loopback

STRONG = "Xq3vN8tB1kLw6zRy5mHc2pDf9sGj4aUe"
OTHER = "9sGj4aUeXq3vN8tB1kLw6zRy5mHc2pDf"
LOOPBACK = ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
ELSEWHERE = ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", "::ffff:10.0.0.1"]


def problems_of(**environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        load(environ)
    problems: list[str] = refused.value.details["problems"]
    return problems


@pytest.mark.parametrize("host", LOOPBACK)
def test_no_authentication_is_allowed_on_loopback(host: str):
    assert load({"DW_AUTH_DRIVER": "none", "DW_HOST": host}).listen.is_loopback


@pytest.mark.parametrize("host", ELSEWHERE)
def test_no_authentication_is_refused_anywhere_else(host: str):
    (problem,) = problems_of(DW_AUTH_DRIVER="none", DW_HOST=host, DW_INSECURE_HTTP="true")
    assert "DW_AUTH_DRIVER=none works on a loopback address only" in problem


def test_no_authentication_behind_a_proxy_is_warned_about():
    settings = load({"DW_AUTH_DRIVER": "none", "DW_TRUSTED_PROXIES": "127.0.0.1"})
    assert any("anyone who reaches the proxy" in warning for warning in settings.warnings)


@pytest.mark.parametrize("token", [*sorted(SAMPLE_SECRETS), "Worker-Secret", STRONG[:31], "ab" * 20])
def test_a_weak_token_works_on_loopback_with_a_warning(token: str):
    settings = load({"DW_WORKER_TOKEN": token})
    (warning,) = settings.warnings
    assert warning.startswith("environment: DW_WORKER_TOKEN ")
    assert settings.auth.secrets.worker is not None


@pytest.mark.parametrize("token", ["worker-secret", "changeme", STRONG[:31], "ab" * 20])
@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_weak_token_is_refused_on_any_other_bind(host: str, token: str):
    (problem,) = problems_of(DW_WORKER_TOKEN=token, DW_HOST=host, DW_INSECURE_HTTP="true")
    assert problem.startswith("environment: DW_WORKER_TOKEN ")
    assert "token_urlsafe" in problem


def test_the_sample_environment_of_the_documentation_starts_on_loopback():
    tokens = load(
        {
            "DW_AUTH_DRIVER": "token",
            "DW_WORKER_TOKEN": "worker-secret",
            "DW_OPERATOR_TOKEN": "operator-secret",
            "DW_ADMIN_TOKEN": "admin-secret",
        }
    )
    keys = load(
        {
            "DW_AUTH_DRIVER": "signature",
            "DW_WORKER_SIGNATURE_KEY": "worker-signature-secret",
            "DW_OPERATOR_SIGNATURE_KEY": "operator-signature-secret",
            "DW_ADMIN_SIGNATURE_KEY": "admin-signature-secret",
        }
    )
    assert len(tokens.warnings) == len(keys.warnings) == 3
    assert tokens.auth.secrets.has_roles
    assert keys.auth.secrets.has_roles


def test_tokens_in_the_clear_need_a_word_from_the_operator():
    (problem,) = problems_of(DW_HOST="0.0.0.0", DW_WORKER_TOKEN=STRONG)
    assert "DW_TRUSTED_PROXIES" in problem
    assert "DW_INSECURE_HTTP=true" in problem
    accepted = load({"DW_HOST": "0.0.0.0", "DW_WORKER_TOKEN": STRONG, "DW_INSECURE_HTTP": "true"})
    assert any("in the clear" in warning for warning in accepted.warnings)
    proxied = load({"DW_HOST": "0.0.0.0", "DW_WORKER_TOKEN": STRONG, "DW_TRUSTED_PROXIES": "10.0.0.2"})
    assert not any("in the clear" in warning for warning in proxied.warnings)


def test_a_signature_over_the_body_alone_is_as_good_as_a_token_to_an_eavesdropper():
    key = {"DW_AUTH_DRIVER": "signature", "DW_WORKER_SIGNATURE_KEY": STRONG, "DW_HOST": "0.0.0.0"}
    load(key)
    (problem,) = problems_of(**key, DW_SIGNATURE_PROFILE="body")
    assert "in the clear" in problem


def test_the_body_profile_is_warned_about():
    environ = {
        "DW_AUTH_DRIVER": "signature",
        "DW_SIGNATURE_KEY": STRONG,
        "DW_SIGNATURE_PROFILE": "body",
    }
    (warning,) = load(environ).warnings
    assert "can be replayed" in warning


@pytest.mark.parametrize("first", ["DW_WORKER_TOKEN", "DW_OPERATOR_TOKEN", "DW_ADMIN_TOKEN"])
def test_two_roles_never_share_a_token(first: str):
    (problem,) = problems_of(**{first: STRONG, "DW_AUTH_TOKEN": STRONG})
    assert f"{first} and DW_AUTH_TOKEN are the same secret" in problem


def test_two_roles_never_share_a_signature_key():
    (problem,) = problems_of(
        DW_AUTH_DRIVER="signature", DW_WORKER_SIGNATURE_KEY=STRONG, DW_ADMIN_SIGNATURE_KEY=STRONG
    )
    assert "the same secret" in problem


def test_the_signature_driver_without_a_key_is_refused():
    (problem,) = problems_of(DW_AUTH_DRIVER="signature", DW_WORKER_TOKEN=STRONG)
    assert "DW_WORKER_SIGNATURE_KEY" in problem


def test_the_token_driver_without_a_token_starts_with_a_warning():
    settings = load({})
    (warning,) = settings.warnings
    assert warning.startswith("default: no token is set")
    assert settings.auth.secrets.is_empty


def test_a_shared_token_that_is_switched_off_is_not_there():
    settings = load({"DW_AUTH_TOKEN": STRONG, "DW_AUTH_BACKWARD_COMPATIBLE": "false"})
    assert settings.auth.secrets.is_empty
    assert any("DW_AUTH_TOKEN is not used" in warning for warning in settings.warnings)
    assert any("no token is set" in warning for warning in settings.warnings)
    (problem,) = problems_of(
        DW_AUTH_DRIVER="signature", DW_SIGNATURE_KEY=STRONG, DW_AUTH_BACKWARD_COMPATIBLE="false"
    )
    assert "needs a key" in problem


def test_secrets_of_another_driver_are_pointed_out():
    settings = load({"DW_WORKER_TOKEN": STRONG, "DW_SIGNATURE_KEY": OTHER})
    assert settings.warnings == ("environment: DW_SIGNATURE_KEY is not used: DW_AUTH_DRIVER is token",)


def test_a_loopback_server_answers_only_to_its_own_names():
    listen = load({"DW_ALLOWED_HOSTS": "penstock.test"}).listen
    for name in ("localhost", "LocalHost", "localhost.", "127.0.0.1", "[::1]:8080", "penstock.test:80"):
        check_host({"host": name}, listen.allowed_hosts)
    for name in ("evil.example", "127.0.0.1.evil.example", ""):
        with pytest.raises(InvalidInput):
            check_host({"host": name}, listen.allowed_hosts)


def test_a_server_for_other_machines_answers_to_the_names_it_was_given_or_to_all_with_a_warning():
    public = {"DW_HOST": "0.0.0.0", "DW_WORKER_TOKEN": STRONG, "DW_TRUSTED_PROXIES": "10.0.0.2"}
    named = load({**public, "DW_ALLOWED_HOSTS": "api.example.com"})
    assert named.warnings == ()
    assert named.listen.allowed_hosts == frozenset({"api.example.com"})
    unnamed = load(public)
    assert unnamed.listen.allowed_hosts is None
    check_host({"host": "anything.example"}, None)
    assert any("DW_ALLOWED_HOSTS" in warning for warning in unnamed.warnings)


def test_only_listed_proxies_are_believed():
    listen = load({"DW_TRUSTED_PROXIES": "10.0.0.0/8, fd00::/8"}).listen
    for peer in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert listen.trusts_proxy(peer)
    for peer in ("11.0.0.1", "::1", "testclient", "", "10.0.0.1, 10.0.0.2"):
        assert not listen.trusts_proxy(peer)
    assert not load({}).listen.trusts_proxy("127.0.0.1")


def test_a_staleness_shorter_than_a_poll_is_warned_about():
    settings = load({"DW_AUTH_TOKEN": STRONG, "DW_WORKER_STALE_AFTER_SECONDS": "30"})
    (warning,) = settings.warnings
    assert "will look stale" in warning


def test_a_memo_limit_that_is_never_reached_is_warned_about():
    (warning,) = load({"DW_AUTH_TOKEN": STRONG, "DW_MAX_PAYLOAD_BYTES": "1024"}).warnings
    assert "DW_MAX_MEMO_BYTES" in warning


@given(st.ip_addresses())
def test_an_address_is_loopback_exactly_when_the_standard_says_so(address):
    mapped = getattr(address, "ipv4_mapped", None)
    assert is_loopback(str(address)) == (mapped or address).is_loopback
