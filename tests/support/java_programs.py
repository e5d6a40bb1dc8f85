"""Java programs against a release's jars: `mqadmin`, and small mains of our own, run in a temporary home."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.jvm import JavaFailed, JavaProcess
from tests.support.maven import jars, java

# 4.9.7 deletes topics wholly, and starts again after SIGKILL, only with these (buffers are unmapped by reflection).
OPENED = tuple(
    option
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
    for option in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
)

RUN_AND_EXIT = Path(__file__).parent / "java" / "RunAndExit.java"


def mqadmin(version: str, *arguments: str, nameserver: str, timeout: float = 60.0) -> str:
    """Returns the output of Java's administration tool, errors included: its exit status is always 0."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    with temporary_directory(version) as home:
        logs = "-Drmq.logback.configurationFile=rmq.tools.logback.xml"
        rest = (*OPENED, logs, RUN_AND_EXIT.stem, main, *arguments, "-n", nameserver)
        return _run(java_command(version, home, *rest, classes=_launcher()), timeout)


def run_java(
    version: str, source: Path, *arguments: str, timeout: float = 60.0, java_options: Sequence[str] = ()
) -> str:
    """Runs one Java file against a release's client and returns its output; raises `JavaFailed` when it fails."""
    with temporary_directory(version) as home:
        return _run(java_command(version, home, *java_options, str(source), *arguments), timeout)


@contextmanager
def start_java(version: str, source: Path, *arguments: str) -> Iterator[JavaProcess]:
    """Yields the program of `run_java` while it runs; its output is in `log`. Kills it on leaving."""
    with temporary_directory(version) as home:
        command = java_command(version, home, str(source), *arguments)
        process = JavaProcess(source.name, command, home / "output.log", java_environment())
        process.start()
        try:
            yield process
        finally:
            process.kill()


def _run(command: Sequence[str], timeout: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            env=java_environment(),
        )
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"")[-3000:].decode(errors="replace")  # bytes, in spite of text=True
        raise JavaFailed(f"{' '.join(command[-4:])} did not end within {timeout:g} s\n{text}") from None
    if done.returncode:
        raise JavaFailed(f"{' '.join(command[-4:])} ended with {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def java_command(version: str, home: Path, *rest: str, classes: Path | None = None) -> list[str]:
    """Returns a `java` command with a release's jars.

    Files it would write under the user's home or /tmp (RocksDB) go to `home`.
    """
    properties = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
    path = os.pathsep.join([f"{jars(version)}/*", *([str(classes)] if classes else [])])
    return [java(), *properties, "-cp", path, *rest]


@cache
def _launcher() -> Path:
    """Returns the directory of the class of `RUN_AND_EXIT`, compiled once a process."""
    directory = Path(tempfile.mkdtemp(prefix="pyrmq-launcher-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    compiler = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    _run([*compiler, "-d", str(directory), str(RUN_AND_EXIT)], timeout=60)
    return directory


def java_environment() -> dict[str, str]:
    """Returns our environment without the variables that change where Java looks or what it prints."""
    unwanted = {"NAMESRV_ADDR", "ROCKETMQ_HOME", "JAVA_TOOL_OPTIONS", "CLASSPATH", "JAVA_OPT"}
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def prepare_home(home: Path) -> None:
    """Writes the logging configuration that 4.9.7 wants in its home; 5.x brings its own."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for server in ("namesrv", "broker", "tools"):
        (home / "conf" / f"logback_{server}.xml").write_text("<configuration/>\n")


@contextmanager
def temporary_directory(version: str) -> Iterator[Path]:
    """Yields a new home, memory-backed where possible; removes it on leaving."""
    memory = Path("/dev/shm")
    within = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    home = Path(tempfile.mkdtemp(prefix=f"pyrmq-rocketmq-{version}-", dir=within))
    prepare_home(home)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
