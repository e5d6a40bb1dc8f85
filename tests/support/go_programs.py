"""The Go program of `interop/go`, built once by the machine's Go into the cache directory."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.support.maven import ApacheUnavailable, alone, cache_directory

SOURCE = Path(__file__).parent.parent / "interop" / "go"
BUILD_SECONDS = 900
RUN_SECONDS = 300.0
INSTALLED = "/usr/local/go/bin"  # where Go's own archive puts it, often without a place on the path


def run_go(*arguments: str, timeout: float = RUN_SECONDS, may_die: bool = False) -> str:
    """Runs the program and returns its output; raises `AssertionError` when it ends with an error.

    With `may_die` the end by SIGKILL is none.
    """
    program = built()
    with tempfile.TemporaryDirectory(prefix="pyrmq-go-") as home:  # the client stores offsets of broadcasts in its home
        command, environment = [str(program), *arguments], os.environ | {"HOME": home}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0 or (may_die and done.returncode == -signal.SIGKILL), done.stdout + done.stderr
    return done.stdout


def built() -> Path:
    """Returns the program, built at the first call; raises `ApacheUnavailable` without Go or its modules."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), INSTALLED)))
    if go is None:
        raise ApacheUnavailable("Go is missing: install it (for example: apt-get install golang-go)")
    files = sorted(path for path in SOURCE.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    cache = cache_directory()
    program = cache / f"go-judges-{digest}"
    if not program.is_file():
        with alone(cache / "go-judges.lock"):
            if not program.is_file():
                _build(go, cache, program)
    return program


def _build(go: str, cache: Path, program: Path) -> None:
    places = {
        "CGO_ENABLED": "0",
        "GOPATH": str(cache / "go"),
        "GOCACHE": str(cache / "go-build"),
        "GOFLAGS": "-mod=readonly -modcacherw",
    }
    unfinished = program.with_suffix(".part")
    command = [go, "build", "-o", str(unfinished), "."]
    environment = os.environ | places | {"GOTOOLCHAIN": "local"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=SOURCE, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise ApacheUnavailable(f"the Go program could not be built: {lines[-1][:300]}")
    unfinished.rename(program)
