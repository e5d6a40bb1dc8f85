"""Programs of Java's client, those of `benchmarks/java` with 5.4.0, and the figures that they print."""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.pairs import Figure
from benchmarks.support.user_rows import SMALL, Case, lines_of
from tests.support.java_programs import run_java
from tests.support.jvm import JavaFailed

RELEASE = "5.4.0"
FOLDER = Path(__file__).parent.parent / "java"
PROGRAM_SECONDS = 300
TRIES = 4


def java_output(program: str, *arguments: object, tries: int = 1) -> str:
    """Runs a program in a machine of its own, and again if it fails, as Java's first request does at times."""
    try:
        texts = map(str, arguments)
        return run_java(RELEASE, FOLDER / f"{program}.java", *texts, timeout=PROGRAM_SECONDS, java_options=())
    except JavaFailed:
        if tries == 1:
            raise
        return java_output(program, *arguments, tries=tries - 1)


def lite_pull(nameserver: str, topic: str, count: int) -> Figure:
    """Returns the rate of the lite pull consumer that reads the topic for the second time."""
    return Figure(figure_in(java_output("LitePull", nameserver, topic, count, tries=TRIES), "rate"))


def sends(nameserver: str, topic: str, mode: str, count: int, window: int = 0, case: Case = SMALL) -> Figure:
    """Returns the figure of the producer's second run, when Java's machine has compiled its code.

    The machine is the one that this process keeps.
    """
    with lines_of(case) as file:
        arguments = nameserver, topic, mode, str(count), str(window), str(file)
        output = run_java(RELEASE, FOLDER / "SendRates.java", *arguments, timeout=PROGRAM_SECONDS)
    return Figure(figure_in(output, "rate"), figure_in(output, "cpu"))


def figure_in(output: str, name: str) -> float:
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith(f"{name} "))
