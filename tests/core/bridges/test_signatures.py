"""Signatures of webhooks, against the published examples' form and against every way to bend them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bridges.signatures import (
    Refusal,
    SignatureScheme,
    SignedDelivery,
    signing_key,
    verify,
)

KEY, NOW_S, BODY = b"a-key-of-16-byte", 1_767_225_600, b'{"a": 1}'
TOLERANCE_MS = 300_000


def judge(
    scheme: SignatureScheme,
    headers: dict[str, str],
    body: bytes = BODY,
    keys: tuple[bytes, ...] = (KEY,),
    now_ms: int = NOW_S * 1000,
) -> SignedDelivery | Refusal:
    return verify(scheme, headers, body, keys, TOLERANCE_MS, now_ms)


def standard(body: bytes = BODY, key: bytes = KEY, at: int = NOW_S) -> dict[str, str]:
    proof = base64.b64encode(hmac.digest(key, f"msg_1.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1,{proof}"}


def stripe(body: bytes = BODY, key: bytes = KEY, at: int = NOW_S) -> dict[str, str]:
    proof = hmac.new(key, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={at},v1={proof}"}


def github(body: bytes = BODY, key: bytes = KEY) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"}


def test_the_example_of_the_standard_webhooks_specification_verifies() -> None:
    """The test vector that the libraries of Standard Webhooks share."""
    key = signing_key(SignatureScheme.STANDARD, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    found = judge(SignatureScheme.STANDARD, headers, b'{"test": 2432232314}', (key,), 1_614_265_330_000)
    assert isinstance(found, SignedDelivery)
    assert found.event_id == "msg_p5jXN8AQM9LWM0D4loKWxJek"


@pytest.mark.parametrize(
    ("scheme", "headers"),
    [
        (SignatureScheme.STANDARD, standard()),
        (SignatureScheme.STRIPE, stripe()),
        (SignatureScheme.GITHUB, github()),
    ],
)
def test_an_authentic_delivery_is_accepted_under_any_key_and_refused_under_none(
    scheme: SignatureScheme, headers: dict[str, str]
) -> None:
    assert isinstance(judge(scheme, headers), SignedDelivery)
    assert isinstance(judge(scheme, headers, keys=(b"x" * 16, KEY)), SignedDelivery)
    assert judge(scheme, headers, keys=(b"x" * 16,)) is Refusal.MISMATCH
    assert judge(scheme, headers, BODY + b" ") is Refusal.MISMATCH
    assert judge(scheme, {}) is Refusal.UNSIGNED


def test_one_of_several_signatures_suffices() -> None:
    old, new = standard(key=b"x" * 16), standard()
    both = new | {"webhook-signature": f"{old['webhook-signature']} v2,abc {new['webhook-signature']}"}
    assert isinstance(judge(SignatureScheme.STANDARD, both), SignedDelivery)
    rolled = stripe()["stripe-signature"] + f",v1={'0' * 64},v0=abc"
    assert isinstance(judge(SignatureScheme.STRIPE, {"stripe-signature": rolled}), SignedDelivery)


@given(skew_s=st.integers(-100_000, 100_000))
def test_the_time_decides_only_for_authentic_deliveries(skew_s: int) -> None:
    at = NOW_S + skew_s
    is_recent = abs(skew_s) * 1000 <= TOLERANCE_MS
    assert isinstance(judge(SignatureScheme.STRIPE, stripe(at=at)), SignedDelivery) is is_recent
    assert judge(SignatureScheme.STRIPE, stripe(at=at, key=b"x" * 16)) is Refusal.MISMATCH


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=1",
        "v1=" + "0" * 64,
        "t=1,t=1,v1=" + "0" * 64,
        "t=-1,v1=" + "0" * 64,
        "t=1,v1=zz",
        "t=1,v1=" + "A" * 64,
    ],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    assert judge(SignatureScheme.STRIPE, {"stripe-signature": header}) is Refusal.MALFORMED


@given(text=st.text(max_size=80), scheme=st.sampled_from(SignatureScheme))
def test_no_header_makes_verification_fail_otherwise(text: str, scheme: SignatureScheme) -> None:
    headers = dict.fromkeys(
        ("webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x-hub-signature-256"),
        text,
    )
    assert judge(scheme, headers) in (Refusal.MALFORMED, Refusal.MISMATCH)


def test_a_secret_that_claims_to_be_base64_must_be() -> None:
    with pytest.raises(ValueError, match="not base64"):
        signing_key(SignatureScheme.STANDARD, "whsec_%%%")
    assert signing_key(SignatureScheme.GITHUB, "whsec_%%%") == b"whsec_%%%"
