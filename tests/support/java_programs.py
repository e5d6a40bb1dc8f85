"""Java programs against a release's jars: `mqadmin`, and small mains of our own, run in a temporary home."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.java_machine import JavaMachine
from tests.support.jvm import JavaProcess
from tests.support.maven import jars, java

# 4.9.7 deletes topics wholly, and starts again after SIGKILL, only with these (buffers are unmapped by reflection).
OPENED = tuple(
    option
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
    for option in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
)

PROGRAM_SECONDS = 120.0  # compiling, starting and connecting take seconds each on a busy machine

_machines: dict[str, JavaMachine] = {}


def mqadmin(version: str, *arguments: str, nameserver: str, timeout: float = PROGRAM_SECONDS) -> str:
    """Returns the output of Java's administration tool, errors included: its exit status is always 0."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    return shared_machine(version).run(main, *arguments, "-n", nameserver, timeout=timeout)


def run_java(
    version: str,
    source: Path,
    *arguments: str,
    timeout: float = PROGRAM_SECONDS,
    java_options: Sequence[str] | None = None,
) -> str:
    """Runs one Java file against a release's client and returns its output; raises `JavaFailed` when it fails.

    It runs in the machine that this process keeps for the release; with options, even none, in one of its own.
    """
    if java_options is None:
        return shared_machine(version).run(source.stem, *arguments, source=source, timeout=timeout)
    with own_machine(version, java_options) as machine:
        return machine.run(source.stem, *arguments, source=source, timeout=timeout)


def shared_machine(version: str) -> JavaMachine:
    """Returns the machine that runs the programs of this process against a release, one after another."""
    if version not in _machines or not _machines[version].is_running():
        machine = own_machine(version)
        _machines[version] = machine.__enter__()
        atexit.register(machine.__exit__, None, None, None)
    return _machines[version]


@contextmanager
def own_machine(version: str, options: Sequence[str] = ()) -> Iterator[JavaMachine]:
    """Yields a machine that runs one caller's programs; kills it on leaving."""
    with temporary_directory(version) as home:
        logs = "-Drmq.logback.configurationFile=rmq.tools.logback.xml"
        command = java_command(version, home, "-XX:+DisplayVMOutputToStderr", *OPENED, logs, *options)
        machine = JavaMachine(command, home, java_environment())
        try:
            yield machine
        finally:
            machine.close()


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


def java_command(version: str, home: Path, *rest: str) -> list[str]:
    """Returns a `java` command with a release's jars.

    Files it would write under the user's home or /tmp (RocksDB) go to `home`.
    """
    properties = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
    return [java(), *properties, "-cp", f"{jars(version)}/*", *rest]


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
