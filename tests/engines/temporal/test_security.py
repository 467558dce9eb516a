"""TLS and API keys, against a real Temporal server behind a proxy that ends TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock import Client, Worker, workflow
from penstock.engines.temporal.connection import TemporalAddress
from penstock.failures import Unreachable
from tests.support.temporal import TemporalServer

BRIEFLY = timedelta(milliseconds=100)
_HUFFMAN = {
    " ": "010100",
    "B": "1011101",
    "a": "00011",
    "c": "00100",
    "e": "00101",
    "i": "00110",
    "o": "00111",
    "r": "101100",
    "s": "01000",
    "t": "01001",
}
"""The code of header values in HTTP/2 (RFC 7541, appendix B), for the letters below."""
KEY = "isotactic"


@workflow.defn
class Hello:
    @workflow.run
    async def run(self, name: str) -> str:
        return f"hello {name}"


@dataclass
class TlsProxy:
    """Ends TLS in front of a server. It wants a certificate of each client."""

    port: int
    folder: Path
    received: bytearray = field(default_factory=bytearray)

    @property
    def url(self) -> str:
        names = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
        query = "&".join(f"{name}={self.folder / file}" for name, file in names.items())
        return f"temporals://127.0.0.1:{self.port}/default?{query}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and certificates of a server and a client."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = ec.generate_private_key(ec.SECP256R1())
    write(folder, "ca", authority, certified("ca", authority, authority))
    for name in ("server", "client"):
        own = ec.generate_private_key(ec.SECP256R1())
        write(folder, name, own, certified(name, own, authority))
    return folder


def certified(
    name: str, own: ec.EllipticCurvePrivateKey, authority: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """Return a certificate for loopback, signed by the authority `ca`."""
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named("ca"))
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=own is authority, path_length=None), critical=True)
        .add_extension(address, critical=False)
        .sign(authority, hashes.SHA256())
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    pem = serialization.Encoding.PEM
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


@asynccontextmanager
async def tls_in_front_of(server: TemporalServer, folder: Path) -> AsyncIterator[TlsProxy]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    proxy = TlsProxy(0, folder)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, note: bool) -> None:
        while data := await source.read(65536):
            if note:
                proxy.received += data
            target.write(data)
            await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(
            copy(reader, back, note=True), copy(there, writer, note=False), return_exceptions=True
        )

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()


def in_http2(text: str) -> bytes:
    """Return a header value as it travels."""
    bits = "".join(_HUFFMAN[each] for each in text)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


async def test_workers_and_clients_use_tls_with_client_certificates_and_an_api_key(
    temporal: TemporalServer, certificates: Path
) -> None:
    async with tls_in_front_of(temporal, certificates) as proxy:
        async with (
            await Client.connect(proxy.url, token=KEY) as client,
            Worker(client, task_queue="tls", workflows=[Hello]),
        ):
            assert await client.execute_workflow(Hello, "ada", task_queue="tls") == "hello ada"
        assert in_http2(f"Bearer {KEY}") in proxy.received


async def test_a_client_without_the_certificate_is_refused(
    temporal: TemporalServer, certificates: Path
) -> None:
    async with tls_in_front_of(temporal, certificates) as proxy:
        for url in (
            f"temporal://127.0.0.1:{proxy.port}",  # no TLS
            f"temporals://127.0.0.1:{proxy.port}",  # an authority that this machine does not know
            f"temporals://127.0.0.1:{proxy.port}?ca={certificates / 'ca.pem'}",  # no certificate
        ):
            with pytest.raises(Unreachable):
                await Client.connect(url, retry_for=BRIEFLY)


async def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ca=.*missing\.pem cannot be read"):
        await Client.connect(f"temporals://127.0.0.1:1?ca={tmp_path / 'missing.pem'}", retry_for=BRIEFLY)


async def test_a_token_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="one API key"):
        await Client.connect("temporal://127.0.0.1:1", worker_token="of the worker", retry_for=BRIEFLY)


def test_port_0_is_not_the_default_port() -> None:
    with pytest.raises(ValueError, match="address"):
        TemporalAddress.parse("temporal://127.0.0.1:0")
