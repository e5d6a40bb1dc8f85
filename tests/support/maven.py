"""Apache's jars, fetched once by Maven into a cache directory: `$PYRMQ_CACHE`, or `~/.cache/pyrmq`."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
DOWNLOAD_SECONDS = 900


class ApacheUnavailable(Exception):
    """The error of a machine where Apache's servers cannot run; one line says why, and what to do."""


def java() -> str:
    """Returns the `java` of JAVA_HOME, or of the path."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else None)
    if program is None:
        raise ApacheUnavailable("a JDK is missing: install JDK 17, or name one in JAVA_HOME")
    return program


def jars(version: str) -> Path:
    """Returns the directory of a RocketMQ release's jars (28 MB for 4.9.7, 88 MB for 5.4.0), as `jars_of` does."""
    return jars_of("rocketmq", version, POM)


def jars_of(name: str, version: str, pom: Path) -> Path:
    """Returns the directory of all jars of a description that names `${NAME.version}`; downloads them the first time.

    Two processes at once are safe: one downloads, the other waits for it. Without Maven or network this raises
    `ApacheUnavailable`.
    """
    cache = cache_directory()
    directory = cache / f"{name}-{version}"
    if not directory.is_dir():
        with alone(cache / f"{name}-{version}.lock"):
            if not directory.is_dir():
                _download(name, version, pom, directory)
    return directory


def cache_directory() -> Path:
    """Returns the cache directory, which exists."""
    cache = Path(os.environ.get("PYRMQ_CACHE") or Path.home() / ".cache" / "pyrmq")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file; other processes wait for it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(name: str, version: str, pom: Path, directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ApacheUnavailable("Maven is missing: install it (for example: apt-get install maven)")
    unfinished = directory.with_name(
        f"{directory.name}.part"
    )  # a killed process may have left half a file: start again
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-D{name}.version={version}", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        raise ApacheUnavailable(
            f"the jars of {name} {version} did not come within {DOWNLOAD_SECONDS} s; try again"
        ) from None
    if done.returncode:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise ApacheUnavailable(f"Maven could not fetch {name} {version}: {(errors or ['no reason given'])[0][:300]}")
    unfinished.rename(directory)
