"""A service of jobs on loopback, the environment of its workers, and certificates for host names."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime as dt
import hashlib
import http.server
import io
import os
import site
import subprocess
import sys
import tarfile
import threading
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def forget(client: Any) -> None:
    """Closes a process's one client of a store, which would leave its connections to the garbage collector."""
    if client.cache_info().currsize:
        client().close()
    client.cache_clear()


class JobService(abc.ABC):
    """Jobs, each run by a thread of its own.

    Attributes:
      endpoint: the address.
      jobs: all jobs by id, in the order in which they were submitted.
      status: answers every request with this HTTP status; None: answers what is asked.
    """

    def __init__(self) -> None:
        self._open = threading.Event()  # unset: jobs stay in the queue
        self._open.set()
        self._threads: list[threading.Thread] = []
        self.endpoint = ""
        self.jobs: dict[str, Any] = {}
        self.status: int | None = None

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Jobs that are submitted in the block stay in the queue until it ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def start(self, job: Any, work: Callable[[Any], None]) -> None:
        """Adds a job, which is worked on once the queue is open."""

        def run() -> None:
            self._open.wait()
            work(job)

        self.jobs[job.id] = job
        self._threads.append(threading.Thread(target=run, name=job.id))
        self._threads[-1].start()

    @abc.abstractmethod
    def cancel(self, job: Any) -> None:
        """Cancels a job, unless it has ended."""

    def close(self) -> None:
        """Cancels what is running, and waits for it."""
        for job in self.jobs.values():
            self.cancel(job)
        self._open.set()
        for thread in self._threads:
            thread.join()


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """One connection of a client; `service` is what the requests are about."""

    server: Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent at once: if header and body are sent separately, a connection waits 40 ms
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Logs nothing."""

    @property
    def service(self) -> Any:
        return self.server.service

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def send(self, status: int, data: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content_Type": content_type, "Content_Length": str(len(data))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service: Any, handler: type[JsonHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes the connection is no error."""


@contextlib.contextmanager
def serving(service: Any, handler: type[JsonHandler]) -> Iterator[None]:
    """Serves at the service's `endpoint` until the `with` block ends, and closes it."""
    with Server(service, handler) as server:
        service.endpoint = f"http://localhost:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield
        finally:
            service.close()
            server.shutdown()


@dataclasses.dataclass(frozen=True)
class WorkerEnvironment:
    """A Python environment that holds the dependencies without the project, and the packages installed for its workers.

    Attributes:
      folder: holds the environment and the installed packages.
    """

    folder: Path
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def install(self, packages: Mapping[str, bytes]) -> Path:
        """Installs archives (sdists, wheels) without their dependencies.

        Args:
          packages: the archives by name.

        Returns:
          The folder to import from. Archives of the same files are installed once.
        """
        digest = hashlib.sha256("".join(map(contents_digest, packages.values())).encode()).hexdigest()[:12]
        target = self.folder / f"site-{digest}"
        with self._lock:
            if not target.exists():
                archives = self.folder / f"archives-{digest}"
                archives.mkdir(exist_ok=True)
                for name, data in packages.items():
                    (archives / name).write_bytes(data)
                building = self.folder / f"building-{digest}"
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                pip += ["--no-index", "--no-build-isolation", "--target", str(building)]
                environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
                subprocess.run(
                    [*pip, *(str(archives / name) for name in packages)],
                    env=environment,
                    cwd=self.folder,
                    check=True,
                    timeout=300,
                )
                building.rename(target)
        return target


def contents_digest(archive: bytes) -> str:
    """A digest of an archive's files; an sdist's own bytes differ with each build."""
    if archive[:2] != b"\x1f\x8b":
        return hashlib.sha256(archive).hexdigest()
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            file = files.extractfile(member)
            digest.update(f"{member.name}\0".encode() + (b"" if file is None else file.read()))
    return digest.hexdigest()


def make_environment(folder: Path) -> WorkerEnvironment:
    """Makes the environment in an empty folder.

    A path in a .pth file is added to `sys.path`, but the .pth files in that folder are not read. One of those is what
    makes an editable install of the project importable.
    """
    made = WorkerEnvironment(folder)
    venv.create(folder / "venv", symlinks=True)
    ask = [str(made.python), "-c", "import site; print(site.getsitepackages()[0])"]
    own = subprocess.run(ask, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    (Path(own) / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for module, importable in (("apache_beam", True), ("beam_jobs", False)):
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        code = subprocess.run([str(made.python), "-c", look], cwd=folder, env=environment, check=False).returncode
        assert (code == 0) == importable, f"{made.python}: {module} must {'' if importable else 'not '}be importable"
    return made


DAY = dt.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """PEM files: the authority that clients must trust, and the server's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificate(folder: Path, hosts: Sequence[str]) -> Certificate:
    """Writes the files of a new authority and of its certificate for `hosts`."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name, names = _name("millrace tests"), x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    authority = _builder(name, name, authority_key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    leaf = _builder(_name(hosts[0]), name, key).add_extension(names, critical=False)
    made = Certificate(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    made.certificate.write_bytes(leaf.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
