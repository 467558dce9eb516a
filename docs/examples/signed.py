"""Send one signed request: `python signed.py METHOD PATH [BODY]`, with the key in PENSTOCK_KEY."""

import hashlib
import hmac
import http.client
import os
import secrets
import sys
import time

HOST = os.environ.get("PENSTOCK_HOST", "127.0.0.1:8080")
KEY_ID = "operator"  # whose key it is: worker, operator, admin or shared
NAMESPACE = "default"


def signature(method: str, target: str, body: bytes, content_type: str) -> str:
    """The value of X-Penstock-Signature for this request, now."""
    path, _, query = target.partition("?")
    created, nonce = int(time.time()), secrets.token_urlsafe(16)
    lines = (
        "penstock-signature-v1",
        KEY_ID,
        method,
        HOST.lower(),
        path,
        query,
        NAMESPACE.lower(),
        str(created),
        nonce,
        hashlib.sha256(body).hexdigest(),
        content_type,
        "",  # Content-Encoding: there is none
    )
    proof = hmac.new(os.environ["PENSTOCK_KEY"].encode(), "\n".join(lines).encode(), hashlib.sha256)
    return f"keyid={KEY_ID};created={created};nonce={nonce};v1={proof.hexdigest()}"


def main(method: str, target: str, text: str = "") -> None:
    body = text.encode()
    content_type = "application/json" if body else ""
    headers = {
        "X-Namespace": NAMESPACE,
        "X-Durable-Workflow-Control-Plane-Version": "2",
        "X-Penstock-Signature": signature(method, target, body, content_type),
    }
    if content_type:
        headers["Content-Type"] = content_type
    connection = http.client.HTTPConnection(HOST)
    connection.request(method, target, body or None, headers)
    answer = connection.getresponse()
    sys.stdout.write(f"{answer.status} {answer.read().decode()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
