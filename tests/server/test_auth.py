"""Authentication: what each driver accepts, and that nothing else is accepted."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.permissions import AuthDriver, AuthPolicy, Principal, Role, SignatureProfile
from penstock.errors import (
    ConfigurationError,
    Exhausted,
    InvalidInput,
    PenstockError,
    Reason,
    Unauthenticated,
    Unavailable,
)
from penstock.server.auth import Authenticator, AuthRequest, FailureThrottle
from penstock.server.request_reader import fold_headers
from penstock.wire import signatures as signing

NOW_MS = 1_767_225_600_250
NOW_S = NOW_MS // 1000
NONCE = "nonce-0123456789abcdef"
API_ROLES = frozenset(Role) - {Role.VIEWER}
"""Viewers sign in to the dashboard only."""
KEYS = {"worker": "worker-key", "operator": "operator-key", "admin": "admin-key"}


class Nonces:
    """A nonce register in memory."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], int] = {}

    async def __call__(self, key_id: str, nonce: str, expires_at_ms: int) -> bool:
        if (key_id, nonce) in self.seen:
            return False
        self.seen[key_id, nonce] = expires_at_ms
        return True


class Hidden:
    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text


def auth_request(headers: dict[str, str] | None = None, **changes: Any) -> AuthRequest:
    start = AuthRequest(
        "POST", "/api/workflows", "", {"host": "127.0.0.1:8080", **(headers or {})}, b"{}", NOW_MS
    )
    return dataclasses.replace(start, **changes)


def bearer(token: str) -> AuthRequest:
    return auth_request({"authorization": f"Bearer {token}"})


def policy(driver: AuthDriver = AuthDriver.TOKEN, **fields: Any) -> AuthPolicy:
    return AuthPolicy(driver, **fields)


def authenticator(chosen: AuthPolicy, nonces: Any = None) -> Authenticator:
    return Authenticator(chosen, register_nonce=nonces or Nonces())


async def ask(chosen: AuthPolicy, request: AuthRequest) -> Principal:
    return await authenticator(chosen).authenticate(request, "127.0.0.1")


async def refusal(chosen: AuthPolicy, request: AuthRequest, nonces: Any = None) -> PenstockError:
    with pytest.raises(PenstockError) as refused:
        await authenticator(chosen, nonces).authenticate(request, "127.0.0.1")
    return refused.value


ROLE_SECRETS: dict[str, Any] = {
    "worker_secret": "worker-secret",
    "operator_secret": "operator-secret",
    "admin_secret": "admin-secret",
}


class TestNone:
    async def test_without_authentication_everybody_is_an_admin_who_acts_in_every_role(self) -> None:
        principal = await ask(policy(AuthDriver.NONE), auth_request())
        assert (principal.role, principal.acts_as) == (Role.ADMIN, API_ROLES)

    async def test_even_then_a_token_in_the_url_is_refused(self) -> None:
        error = await refusal(policy(AuthDriver.NONE), auth_request(raw_query="token=x"))
        assert error.reason is Reason.TOKEN_IN_URL


class TestTokens:
    @pytest.mark.parametrize("role", sorted(API_ROLES))
    async def test_each_roles_token_opens_that_role_and_no_other(self, role: Role) -> None:
        principal = await ask(policy(**ROLE_SECRETS), bearer(f"{role}-secret"))
        assert (principal.role, principal.acts_as) == (role, frozenset({role}))

    async def test_a_secret_that_hides_itself_works_as_well(self) -> None:
        principal = await ask(policy(worker_secret=Hidden("worker-secret")), bearer("worker-secret"))
        assert principal.role is Role.WORKER

    async def test_the_shared_token_alone_opens_every_role(self) -> None:
        principal = await ask(policy(shared_secret="shared-secret"), bearer("shared-secret"))
        assert (principal.role, principal.acts_as) == (Role.ADMIN, API_ROLES)

    @pytest.mark.parametrize("beside", ROLE_SECRETS)
    async def test_beside_any_role_token_the_shared_token_is_a_plain_admin(self, beside: str) -> None:
        chosen = policy(shared_secret="shared-secret", **{beside: ROLE_SECRETS[beside]})
        principal = await ask(chosen, bearer("shared-secret"))
        assert (principal.role, principal.acts_as) == (Role.ADMIN, frozenset({Role.ADMIN}))

    async def test_without_backward_compatibility_the_shared_token_is_nothing(self) -> None:
        chosen = policy(shared_secret="shared-secret", backward_compatible=False, **ROLE_SECRETS)
        assert (await refusal(chosen, bearer("shared-secret"))).reason is Reason.UNAUTHORIZED

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"shared_secret": ""},
            {"worker_secret": "", "shared_secret": None},
            {"shared_secret": "shared-secret", "backward_compatible": False},
        ],
    )
    async def test_a_driver_without_a_usable_secret_is_the_servers_fault(
        self, fields: dict[str, Any]
    ) -> None:
        for request in (auth_request(), bearer(""), bearer("shared-secret")):
            assert (await refusal(policy(**fields), request)).reason is Reason.SERVER_ERROR

    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer ",
            "Basic d29ya2VyLXNlY3JldA==",
            "worker-secret",
            "Bearer worker-secre",
            "Bearer worker-secrets",
            "Bearer WORKER-SECRET",
            "Bearer worker-secret, Bearer admin-secret",
            "Bearer worker-\u4e16",
        ],
    )
    async def test_anything_but_a_known_token_is_refused(self, header: str | None) -> None:
        headers = {} if header is None else {"authorization": header}
        error = await refusal(policy(**ROLE_SECRETS), auth_request(headers))
        assert isinstance(error, Unauthenticated)
        assert error.reason is Reason.UNAUTHORIZED

    async def test_an_empty_secret_is_no_secret(self) -> None:
        chosen = policy(worker_secret="", admin_secret="admin-secret")
        assert (await refusal(chosen, bearer(""))).reason is Reason.UNAUTHORIZED

    async def test_the_scheme_is_read_in_any_case(self) -> None:
        principal = await ask(policy(**ROLE_SECRETS), auth_request({"authorization": "bEARER worker-secret"}))
        assert principal.role is Role.WORKER

    async def test_a_token_beyond_ascii_is_compared_by_its_bytes(self) -> None:
        on_the_wire = "clé-secrète".encode().decode("latin-1")
        principal = await ask(policy(worker_secret="clé-secrète"), bearer(on_the_wire))
        assert principal.role is Role.WORKER

    @pytest.mark.parametrize("presented", ["worker-secret", "admin-secret", "wrong"])
    async def test_every_known_token_is_compared_whichever_matches(
        self, presented: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compared = []

        def counting(left: bytes, right: bytes) -> bool:
            compared.append((len(left), len(right)))
            return left == right

        monkeypatch.setattr(hmac, "compare_digest", counting)
        driver = authenticator(policy(shared_secret="shared-secret", **ROLE_SECRETS))
        try:
            await driver.authenticate(bearer(presented), "127.0.0.1")
        except Unauthenticated:
            assert presented == "wrong"
        assert compared == [(32, 32)] * 4

    def test_secrets_are_not_shown_by_the_policy(self) -> None:
        assert "secret-canary" not in repr(
            policy(worker_secret="secret-canary", shared_secret="secret-canary")
        )


class TestUrls:
    @pytest.mark.parametrize(
        "query",
        [
            "token=worker-secret",
            "access_token=x",
            "api_key=x",
            "authorization=Bearer%20x",
            "namespace=orders&TOKEN=x",
            "a=1;token=x",
            "%74oken=x",
            "+token=x",
            "token",
        ],
    )
    async def test_a_credential_in_the_url_is_refused_even_if_the_request_is_authentic(
        self, query: str
    ) -> None:
        request = dataclasses.replace(bearer("worker-secret"), raw_query=query)
        error = await refusal(policy(**ROLE_SECRETS), request)
        assert isinstance(error, InvalidInput)
        assert error.reason is Reason.TOKEN_IN_URL
        assert "worker-secret" not in str(error)

    @pytest.mark.parametrize("query", ["", "namespace=token", "next_page_token=abc", "page_size=5&tokens=1"])
    async def test_other_parameters_pass(self, query: str) -> None:
        request = dataclasses.replace(bearer("worker-secret"), raw_query=query)
        assert (await ask(policy(**ROLE_SECRETS), request)).role is Role.WORKER


class TestHeaders:
    def test_names_are_lower_cased_and_harmless_repeats_are_joined(self) -> None:
        folded = fold_headers([(b"Host", b"a"), (b"Accept", b"x"), (b"accept", b"y")])
        assert folded == {"host": "a", "accept": "x, y"}

    @pytest.mark.parametrize(
        "name",
        [b"authorization", b"x-signature", b"x-penstock-signature", b"x-namespace", b"content-type", b"host"],
    )
    def test_a_header_that_decides_something_stands_once(self, name: bytes) -> None:
        with pytest.raises(InvalidInput) as refused:
            fold_headers([(name, b"a"), (name.title(), b"a")])
        assert refused.value.reason is Reason.MALFORMED_REQUEST


SIGNED = policy(
    AuthDriver.SIGNATURE,
    worker_secret=KEYS["worker"],
    operator_secret=KEYS["operator"],
    admin_secret=KEYS["admin"],
)
BY_BODY = dataclasses.replace(SIGNED, signature_profile=SignatureProfile.BODY)


def body_signature(key: str, body: bytes) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


class TestBodySignatures:
    @pytest.mark.parametrize("role", sorted(API_ROLES))
    @pytest.mark.parametrize("body", [b"", b'{"a": 1}', b"\xff\x00"])
    async def test_each_roles_key_signs_for_that_role(self, role: Role, body: bytes) -> None:
        request = auth_request({"x-signature": body_signature(KEYS[role], body)}, body=body)
        assert (await ask(BY_BODY, request)).role is role

    async def test_the_shared_key_follows_the_rules_of_the_shared_token(self) -> None:
        alone = policy(
            AuthDriver.SIGNATURE, shared_secret="shared-key", signature_profile=SignatureProfile.BODY
        )
        request = auth_request({"x-signature": body_signature("shared-key", b"{}")})
        assert (await ask(alone, request)).acts_as == API_ROLES
        beside = dataclasses.replace(BY_BODY, shared_secret="shared-key")
        assert (await ask(beside, request)).acts_as == frozenset({Role.ADMIN})
        without = dataclasses.replace(beside, backward_compatible=False)
        assert (await refusal(without, request)).reason is Reason.UNAUTHORIZED

    @pytest.mark.parametrize(
        "spoil", [str.upper, lambda text: text[:-1], lambda text: f"sha256={text}", lambda _: ""]
    )
    async def test_only_lower_case_hex_of_the_full_length_is_read(self, spoil: Any) -> None:
        request = auth_request({"x-signature": spoil(body_signature(KEYS["worker"], b"{}"))})
        assert (await refusal(BY_BODY, request)).reason is Reason.UNAUTHORIZED

    async def test_a_signature_of_another_body_or_key_is_refused(self) -> None:
        for signature in (body_signature(KEYS["worker"], b"{} "), body_signature("other-key", b"{}")):
            error = await refusal(BY_BODY, auth_request({"x-signature": signature}))
            assert error.reason is Reason.UNAUTHORIZED

    async def test_a_body_signature_does_not_pass_where_the_full_profile_is_asked_for(self) -> None:
        request = auth_request({"x-signature": body_signature(KEYS["worker"], b"{}")})
        assert (await refusal(SIGNED, request)).reason is Reason.UNAUTHORIZED


def signed(
    request: AuthRequest,
    *,
    key_id: str = "operator",
    secret: str | None = None,
    created: int = NOW_S,
    nonce: str = NONCE,
) -> AuthRequest:
    """The request with a signature over exactly what it holds."""
    headers = request.headers
    covered = signing.SignedRequest(
        method=request.method,
        raw_path=request.raw_path,
        raw_query=request.raw_query,
        host=headers.get("host", ""),
        namespace=headers.get("x-namespace", ""),
        content_type=headers.get("content-type", ""),
        content_encoding=headers.get("content-encoding", ""),
        body=request.body,
    )
    value = signing.sign(covered, secret=secret or KEYS[key_id], key_id=key_id, created=created, nonce=nonce)
    return dataclasses.replace(request, headers={**headers, signing.HEADER: value})


ORIGINAL = auth_request(
    {"x-namespace": "orders", "content-type": "application/json"},
    method="POST",
    raw_path="/api/workflows/w-1/signal/go",
    raw_query="namespace=orders&a=1",
    body=b'{"input": [1]}',
)


def with_header(request: AuthRequest, name: str, value: str) -> AuthRequest:
    return dataclasses.replace(request, headers={**request.headers, name: value})


line = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
path = line.map(lambda text: "/api/" + text.translate(str.maketrans("", "", "/\\#%.")))

moves = st.one_of(
    st.sampled_from(["GET", "PUT", "DELETE", "post"]).map(
        lambda to: dataclasses.replace(ORIGINAL, method=to)
    ),
    path.map(lambda to: dataclasses.replace(ORIGINAL, raw_path=to)),
    line.filter(lambda text: "token" not in text.lower()).map(
        lambda to: dataclasses.replace(ORIGINAL, raw_query=to)
    ),
    st.binary(max_size=30).map(lambda to: dataclasses.replace(ORIGINAL, body=to)),
    *(
        line.map(lambda to, name=name: with_header(ORIGINAL, name, to))  # type: ignore[misc]
        for name in ("x-namespace", "host", "content-type", "content-encoding")
    ),
)


def covered_parts(request: AuthRequest) -> tuple[object, ...]:
    headers = request.headers
    return (
        request.method,
        request.raw_path,
        request.raw_query,
        request.body,
        headers.get("x-namespace", "").lower(),
        headers.get("host", "").lower(),
        headers.get("content-type", ""),
        headers.get("content-encoding", ""),
    )


class TestRequestSignatures:
    @pytest.mark.parametrize("role", sorted(API_ROLES))
    async def test_each_roles_key_signs_for_that_role(self, role: Role) -> None:
        principal = await ask(SIGNED, signed(ORIGINAL, key_id=role))
        assert (principal.role, principal.acts_as) == (role, frozenset({role}))

    async def test_the_shared_key_signs_under_its_own_name(self) -> None:
        chosen = policy(AuthDriver.SIGNATURE, shared_secret="shared-key")
        principal = await ask(chosen, signed(auth_request(), key_id="shared", secret="shared-key"))
        assert principal.acts_as == API_ROLES

    async def test_a_bare_get_is_signed_with_empty_lines(self) -> None:
        request = auth_request(method="GET", body=b"")
        assert (await ask(SIGNED, signed(request))).role is Role.OPERATOR

    @given(moves)
    async def test_a_signature_moved_to_another_request_is_refused(self, moved: AuthRequest) -> None:
        header = signed(ORIGINAL).headers[signing.HEADER]
        carried = with_header(moved, signing.HEADER, header)
        nonces = Nonces()
        if covered_parts(moved) == covered_parts(ORIGINAL):
            await authenticator(SIGNED, nonces).authenticate(carried, "127.0.0.1")
            return
        error = await refusal(SIGNED, carried, nonces)
        assert error.reason is Reason.SIGNATURE_INVALID
        assert nonces.seen == {}

    async def test_parts_cannot_flow_into_one_another(self) -> None:
        request = auth_request(raw_path="/api/a", raw_query="b")
        header = signed(request).headers[signing.HEADER]
        for moved in (
            dataclasses.replace(request, raw_path="/api/ab", raw_query=""),
            dataclasses.replace(request, raw_path="/api/a\nb", raw_query=""),
            dataclasses.replace(request, raw_path="/api/a", raw_query="b\n"),
        ):
            error = await refusal(SIGNED, with_header(moved, signing.HEADER, header))
            assert error.reason is Reason.SIGNATURE_INVALID

    async def test_a_signature_under_one_key_is_not_one_under_another_even_with_equal_secrets(self) -> None:
        twins = dataclasses.replace(SIGNED, admin_secret=KEYS["operator"])
        request = signed(ORIGINAL)
        forged = request.headers[signing.HEADER].replace("keyid=operator", "keyid=admin")
        error = await refusal(twins, with_header(request, signing.HEADER, forged))
        assert error.reason is Reason.SIGNATURE_INVALID

    async def test_time_and_nonce_are_covered(self) -> None:
        request = signed(ORIGINAL)
        header = request.headers[signing.HEADER]
        for forged in (
            header.replace(f"created={NOW_S}", f"created={NOW_S + 1}"),
            header.replace(NONCE, NONCE[::-1]),
        ):
            error = await refusal(SIGNED, with_header(request, signing.HEADER, forged))
            assert error.reason is Reason.SIGNATURE_INVALID

    async def test_a_key_that_is_not_configured_is_as_invalid_as_a_wrong_one(self) -> None:
        no_admin = dataclasses.replace(SIGNED, admin_secret=None)
        error = await refusal(no_admin, signed(ORIGINAL, key_id="admin"))
        wrong = await refusal(SIGNED, signed(ORIGINAL, secret="wrong-key"))
        assert error.reason is wrong.reason is Reason.SIGNATURE_INVALID
        assert (error.message, error.details) == (wrong.message, wrong.details)

    @pytest.mark.parametrize("away_s", [-61, 61, 400, -NOW_S])
    async def test_outside_the_window_a_signature_is_stale_and_the_servers_time_is_told(
        self, away_s: int
    ) -> None:
        nonces = Nonces()
        error = await refusal(SIGNED, signed(ORIGINAL, created=NOW_S + away_s), nonces)
        assert error.reason is Reason.SIGNATURE_STALE
        assert error.details["server_time"] == "2026-01-01T00:00:00.250Z"
        assert nonces.seen == {}

    @pytest.mark.parametrize("away_s", [-59, 0, 60])
    async def test_inside_the_window_clocks_may_differ(self, away_s: int) -> None:
        assert (await ask(SIGNED, signed(ORIGINAL, created=NOW_S + away_s))).role is Role.OPERATOR

    async def test_a_request_sent_twice_is_a_replay_on_any_server(self) -> None:
        nonces = Nonces()
        request = signed(ORIGINAL)
        await authenticator(SIGNED, nonces).authenticate(request, "127.0.0.1")
        error = await refusal(SIGNED, request, nonces)
        assert isinstance(error, Unauthenticated)
        assert error.reason is Reason.SIGNATURE_REPLAYED
        assert "server_time" in error.details

    async def test_a_nonce_outlives_every_moment_at_which_its_signature_is_fresh(self) -> None:
        for away_s in (-59, 0, 60):
            nonces = Nonces()
            request = signed(ORIGINAL, created=NOW_S + away_s)
            await authenticator(SIGNED, nonces).authenticate(request, "127.0.0.1")
            expires_at_ms = nonces.seen["operator", NONCE]
            error = await refusal(SIGNED, dataclasses.replace(request, now_ms=expires_at_ms))
            assert error.reason is Reason.SIGNATURE_STALE

    async def test_the_same_nonce_under_two_keys_is_two_nonces(self) -> None:
        nonces = Nonces()
        driver = authenticator(SIGNED, nonces)
        await driver.authenticate(signed(ORIGINAL, key_id="worker"), "127.0.0.1")
        await driver.authenticate(signed(ORIGINAL, key_id="admin"), "127.0.0.1")
        assert len(nonces.seen) == 2

    async def test_a_request_whose_nonce_cannot_be_recorded_is_not_served(self) -> None:
        async def broken(key_id: str, nonce: str, expires_at_ms: int) -> bool:
            raise OSError("the database is away")

        error = await refusal(SIGNED, signed(ORIGINAL), broken)
        assert isinstance(error, Unavailable)
        assert error.reason is Reason.STORE_UNAVAILABLE

    async def test_a_request_without_a_signature_is_unauthorized(self) -> None:
        assert (await refusal(SIGNED, ORIGINAL)).reason is Reason.UNAUTHORIZED

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda text: "",
            lambda text: text + ";",
            lambda text: text + " ",
            lambda text: text.replace(";", "; "),
            lambda text: text.replace("v1=", "v2="),
            lambda text: text.replace("keyid=operator", "keyid=root"),
            lambda text: text.replace("created=", "created=0"),
            lambda text: text.replace("created=", "created=-"),
            lambda text: text.replace(NONCE, "short"),
            lambda text: text.replace(NONCE, "n" * 65),
            lambda text: text.replace(NONCE, NONCE + "+"),
            lambda text: text[:-1] + text[-1].upper() + "f",
            lambda text: text + "," + text,
        ],
    )
    async def test_a_header_in_any_other_form_is_invalid(self, spoil: Any) -> None:
        request = signed(ORIGINAL)
        error = await refusal(
            SIGNED, with_header(request, signing.HEADER, spoil(request.headers[signing.HEADER]))
        )
        assert error.reason is Reason.SIGNATURE_INVALID

    @pytest.mark.parametrize(
        "raw_path",
        [
            "/api/../admin",
            "/api/%2e%2E/x",
            "/api/./x",
            "//api",
            "/api//x",
            "/api/a\\b",
            "/api/a#b",
        ],
    )
    async def test_a_path_with_two_readings_is_refused_even_if_signed(self, raw_path: str) -> None:
        error = await refusal(SIGNED, signed(dataclasses.replace(ORIGINAL, raw_path=raw_path)))
        assert error.reason is Reason.MALFORMED_REQUEST

    async def test_an_id_with_a_slash_can_be_signed(self) -> None:
        request = signed(dataclasses.replace(ORIGINAL, raw_path="/api/workflows/orders%2F7"))
        assert (await authenticator(SIGNED).authenticate(request, "127.0.0.1")).credential == "operator"

    def test_the_signing_side_refuses_what_the_server_would_not_read(self) -> None:
        for fields in ({"nonce": "short"}, {"key_id": "root", "secret": "x"}, {"created": -1}):
            with pytest.raises(ValueError):
                signed(ORIGINAL, **fields)
        with pytest.raises(ValueError):
            signed(dataclasses.replace(ORIGINAL, raw_path="/a\nb"))

    @pytest.mark.parametrize("window_ms", [0, -1, 300_001])
    def test_a_window_of_no_or_too_much_time_is_refused_at_start(self, window_ms: int) -> None:
        with pytest.raises(ConfigurationError):
            policy(AuthDriver.SIGNATURE, signature_window_ms=window_ms)


class TestThrottle:
    async def test_after_ten_failures_an_address_is_told_to_wait(self) -> None:
        driver = authenticator(policy(**ROLE_SECRETS))
        for _ in range(10):
            with pytest.raises(Unauthenticated):
                await driver.authenticate(bearer("wrong"), "192.0.2.1")
        with pytest.raises(Exhausted) as refused:
            await driver.authenticate(bearer("wrong"), "192.0.2.1")
        assert refused.value.reason is Reason.TOO_MANY_AUTH_FAILURES
        assert refused.value.details["retry_after_seconds"] == 6

    async def test_a_valid_credential_passes_whatever_failed_before_it(self) -> None:
        driver = authenticator(policy(**ROLE_SECRETS))
        for _ in range(50):
            with pytest.raises((Unauthenticated, Exhausted)):
                await driver.authenticate(bearer("wrong"), "192.0.2.1")
        assert (await driver.authenticate(bearer("worker-secret"), "192.0.2.1")).role is Role.WORKER

    def test_failures_are_forgiven_evenly_and_up_to_ten(self) -> None:
        throttle = FailureThrottle()
        for _ in range(10):
            assert throttle.record_failure("192.0.2.1", 0) == 0
        assert throttle.record_failure("192.0.2.1", 0) == 6_000
        assert throttle.record_failure("192.0.2.1", 5_999) == 1
        assert throttle.record_failure("192.0.2.1", 6_000) == 0
        assert throttle.record_failure("192.0.2.1", 6_001) == 5_999
        later = 10_000_000
        assert [throttle.record_failure("192.0.2.1", later) for _ in range(11)] == [0] * 10 + [6_000]

    def test_addresses_do_not_share_a_bucket_but_one_ipv6_network_does(self) -> None:
        throttle = FailureThrottle(failures_per_minute=1)
        assert throttle.record_failure("192.0.2.1", 0) == 0
        assert throttle.record_failure("192.0.2.2", 0) == 0
        assert throttle.record_failure("::ffff:192.0.2.1", 0) > 0
        assert throttle.record_failure("2001:db8::1", 0) == 0
        assert throttle.record_failure("2001:db8::2", 0) > 0
        assert throttle.record_failure("2001:db8:0:1::1", 0) == 0
        assert throttle.record_failure("not an address", 0) == 0

    def test_the_table_is_bounded_and_forgets_the_oldest(self) -> None:
        throttle = FailureThrottle(failures_per_minute=1, addresses_max=100)
        for number in range(1_000):
            throttle.record_failure(f"10.0.{number // 256}.{number % 256}", 0)
        assert len(throttle) == 100
        assert throttle.record_failure("10.0.3.231", 0) > 0
        assert throttle.record_failure("10.0.0.0", 0) == 0

    def test_a_clock_that_steps_back_locks_nobody_out_for_long(self) -> None:
        throttle = FailureThrottle()
        for _ in range(10):
            throttle.record_failure("192.0.2.1", 10_000_000)
        assert throttle.record_failure("192.0.2.1", 0) == 6_000
