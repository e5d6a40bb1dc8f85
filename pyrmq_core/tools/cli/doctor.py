"""`pyrmq doctor`: checks that a Spark job would find its Python, the data source, Java, NameServers and brokers.

To check the libraries, it starts the Python that Spark would use.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pyrmq_core import NetworkError, RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option
from pyrmq_core.tools.search.json_output import json_text

if TYPE_CHECKING:
    import trio

OK: Final = "OK"
WARN: Final = "WARN"  # a Spark job may run or fail
FAIL: Final = "FAIL"  # a Spark job cannot run

PYTHON_SECONDS: Final = 60.0
JAVA_SECONDS: Final = 20.0
CONNECTS_AT_ONCE: Final = 32

MIN_PYSPARK: Final = (4, 0)
MIN_PYARROW: Final = (18,)
MIN_JAVA: Final = 17
TRIED_JAVAS: Final = (17, 21)

# Finds data sources as Spark does (sql/worker/lookup_data_sources.py, 4.3), which finds none if importing any top-level
# module pyspark_* fails. The working directory is left out, because executors on other machines do not have it.
PROBE: Final = """
import importlib, importlib.metadata, json, pkgutil, sys
if sys.path[:1] == [""]:
    del sys.path[0]
found = {"python": sys.version.split()[0], "errors": {}, "versions": {}, "sources": []}
for name in ("pyspark", "pyarrow", "numpy", "trio", "pyrmq_core", "pyrmq_spark"):
    try:
        found["versions"][name] = str(getattr(importlib.import_module(name), "__version__", ""))
    except Exception as error:
        found["errors"][name] = type(error).__name__ + ": " + str(error)
try:
    found["versions"]["pyrmq_core"] = importlib.metadata.version("pyrmq-spark")
except Exception:
    pass
try:
    from pyrmq_core.columnar.decoding.compiled import decoder
    choice = decoder()
    found["decoder"] = {"status": "WARN" if choice.is_refused else "OK", "reason": choice.text}
except Exception:
    pass
for module in list(pkgutil.iter_modules()):
    if module.name.startswith("pyspark_"):
        try:
            if hasattr(importlib.import_module(module.name), "DefaultSource"):
                found["sources"].append(module.name)
        except Exception as error:
            found["errors"][module.name] = type(error).__name__ + ": " + str(error)
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Check:
    check: str
    status: str
    found: str
    advice: str = ""

    def line(self) -> str:
        return f"{self.status:<5}{self.check:<12}{self.found}{': ' if self.advice else ''}{self.advice}"


@click.command(cls=SectionedCommand)
@connection_options
@json_option
def doctor(connection: Connection, as_json: bool) -> None:
    """Report what a Spark job would find here: Python, the data source, Java, NameServers, brokers."""
    checks = [*check_python(os.environ), check_java(os.environ)]
    run(_add_servers, connection, checks)
    if as_json:
        click.echo(json_text([asdict(check) for check in checks]))
    else:
        for check in checks:
            click.echo(visible_text(check.line()))
    raise SystemExit(1 if any(check.status == FAIL for check in checks) else 0)


def check_python(environment: Mapping[str, str]) -> list[Check]:
    name, command = spark_python(environment)
    reason = name or "neither PYSPARK_PYTHON nor PYSPARK_DRIVER_PYTHON is set"
    use_this = f"export PYSPARK_PYTHON={sys.executable}"
    remedy = "unset PYSPARK_DRIVER_PYTHON" if name == "PYSPARK_DRIVER_PYTHON" else use_this
    path = shutil.which(command, path=environment.get("PATH"))
    if path is None:
        return [Check("python", FAIL, f"{command} ({reason}) is no program here", remedy)]
    output = _output([path, "-c", PROBE], PYTHON_SECONDS, _as_spark_submit(environment))
    try:
        has: Any = json.loads(output.splitlines()[-1])
        python = f"{path} ({reason}), {has['python']}"
    except (ValueError, LookupError, TypeError):
        text = f"{path} ({reason}) does not run as a Python: {_last_line(output)}"
        return [Check("python", FAIL, text, remedy)]
    warnings = [Check("python", WARN, *warned) for warned in _settings_that_harm(environment)]
    return [Check("python", OK, python), *warnings, *judge(has, name, use_this)]


def spark_python(environment: Mapping[str, str]) -> tuple[str, str]:
    """Returns the variable that selects Spark's Python, and its value. If none is set, returns "" and `python3`."""
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        if environment.get(name):
            return name, environment[name]
    return "", "python3"


def judge(has: Mapping[str, Any], name: str, use_this: str) -> list[Check]:
    """Returns the checks of the Python that Spark would use.

    `has` is the output of `PROBE` in that Python, and `name` the environment variable that selects it. `use_this` is
    the advice to use the Python that runs this command instead.
    """
    versions, errors = has["versions"], has["errors"]
    checks = [_at_least("pyspark", MIN_PYSPARK, versions, errors)]
    missing = next((package for package in ("pyrmq_core", "pyrmq_spark") if package in errors), None)
    if missing is not None:
        use = "unset PYSPARK_DRIVER_PYTHON, and " + use_this if name == "PYSPARK_DRIVER_PYTHON" else use_this
        advice = f'pip install "pyrmq-spark[spark]" there, or {use}; see docs/cluster.md'
        checks.append(Check("pyrmq", FAIL, f"that Python cannot import {missing} ({errors[missing]})", advice))
    elif "pyspark_rocketmq" in has["sources"]:
        checks.append(Check("pyrmq", OK, f"{versions['pyrmq_core'] or 'no version'}, found by its name"))
    elif "pyspark" in versions:
        advice = "pyrmq_spark.register(spark), or install the package with pip"
        checks.append(Check("pyrmq", WARN, "can be imported, but Spark does not find it by its name", advice))
    checks += [_at_least("pyarrow", MIN_PYARROW, versions, errors), _at_least("numpy", (), versions, errors)]
    if (decoder := has.get("decoder")) is not None:
        checks.append(Check("decoder", decoder["status"], decoder["reason"]))
    checks += [
        Check("sources", FAIL, f"module {module} raises {error}", "Spark finds no source in Python while it does so")
        for module, error in errors.items()
        if module.startswith("pyspark_")
    ]
    return checks


def check_java(environment: Mapping[str, str]) -> Check:
    home = environment.get("JAVA_HOME")
    path = shutil.which(str(Path(home, "bin", "java")) if home else "java", path=environment.get("PATH"))
    remedy = "install a JDK 17 or 21, or name one in JAVA_HOME"
    if path is None:
        return Check("java", FAIL, f"JAVA_HOME={home} has no bin/java" if home else "there is none", remedy)
    output = _output([path, "-version"], JAVA_SECONDS, environment)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', output)
    if version is None:
        return Check("java", FAIL, f"{path} does not say its version: {_last_line(output)}", remedy)
    number = int(version[1])
    text = f"{path}, {version[0].removeprefix('version ').strip(chr(34))}"
    if number < MIN_JAVA:
        return Check("java", FAIL, text, f"Spark 4 needs Java {MIN_JAVA}: {remedy}")
    return Check("java", OK, text) if number in TRIED_JAVAS else Check("java", WARN, text, "17 and 21 are tried")


async def _add_servers(connection: Connection, checks: list[Check]) -> None:
    tls = connection.tls.context()  # raises for unusable files, even without a NameServer
    addresses = await connection.nameservers()
    if not addresses and connection.nameserver_url:
        checks.append(Check("nameserver", FAIL, f"{connection.nameserver_url} lists none", "look at its first line"))
    elif not addresses:
        checks.append(Check("nameserver", WARN, "none is named", "-n host:port, or export NAMESRV_ADDR=host:port"))
    brokers: dict[str, tuple[str, int]] = {}
    nameservers = [await _check_nameserver(connection.at(address), brokers) for address in addresses]
    failed = WARN if any(check.status == OK for check in nameservers) else FAIL  # a client tries the next NameServer
    checks += [replace(check, status=failed) if check.status == FAIL else check for check in nameservers]
    check_of: dict[str, Check] = {}
    import trio

    limiter = trio.CapacityLimiter(CONNECTS_AT_ONCE)
    async with trio.open_nursery() as nursery:
        for address in brokers:
            nursery.start_soon(_check_broker, address, *brokers[address], check_of, limiter, connection.timeout, tls)
    checks += [check_of[address] for address in brokers]


async def _check_nameserver(connection: Connection, brokers: dict[str, tuple[str, int]]) -> Check:
    """Checks a NameServer, and adds the name and id of each of its brokers to `brokers`, by address."""
    address = connection.nameserver
    try:
        async with connection.admin() as admin:
            info = await admin.cluster_info()
    except RocketMQError as error:
        return Check("nameserver", FAIL, f"{address}: {error}")
    named = {
        broker: (name, broker_id)
        for name, broker_data in sorted(info.broker_addr_table.items())
        for broker_id, broker in sorted(broker_data.broker_addrs.items())
    }
    brokers.update(named)
    if not named:
        return Check("nameserver", FAIL, f"{address} knows no broker", "start one, or look at its namesrvAddr")
    return Check("nameserver", OK, f"{address}, {len(named)} {'broker' if len(named) == 1 else 'brokers'}")


async def _check_broker(
    address: str,
    name: str,
    broker_id: int,
    check_of: dict[str, Check],
    limiter: trio.CapacityLimiter,
    timeout: float,
    tls: ssl.SSLContext | None,
) -> None:
    """Checks that a broker accepts connections. A failure is an error for a master (id 0), a warning for a slave."""
    where = f"{name} ({broker_id}) {address}"
    from pyrmq_core.network import connect

    async with limiter:
        try:
            wire = await connect.open_wire(address, tls=tls, timeout=timeout)
            await wire.aclose()
        except NetworkError as error:
            advice = "every executor connects to this address: open the port, or set the broker's brokerIP1"
            check_of[address] = Check("broker", WARN if broker_id else FAIL, f"{where}: {error}", advice)
        else:
            check_of[address] = Check("broker", OK, where)


def _at_least(package: str, minimum: tuple[int, ...], versions: Mapping[str, str], errors: Mapping[str, str]) -> Check:
    floor = ".".join(map(str, minimum))
    install = f'pip install "{package}>={floor}"' if floor else f"pip install {package}"
    if package in errors:
        return Check(package, FAIL, errors[package], install)
    numbers = tuple(int(number) for number in re.findall(r"\d+", versions[package])[: len(minimum)])
    if numbers < minimum:
        return Check(package, FAIL, f"{versions[package]} is older than {floor}", install)
    return Check(package, OK, versions[package])


def _settings_that_harm(environment: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yields a warning and a remedy for each setting with which Spark may look for sources in another Python."""
    driver, workers = environment.get("PYSPARK_DRIVER_PYTHON"), environment.get("PYSPARK_PYTHON")
    if driver and driver != workers:
        yield (
            f"PYSPARK_DRIVER_PYTHON={driver} is also what starts the source in the workers",
            "unset it: PYSPARK_PYTHON is enough",
        )
    for file in _defaults_files(environment):
        for name, variable in (
            ("spark.pyspark.driver.python", "PYSPARK_DRIVER_PYTHON"),
            ("spark.pyspark.python", "PYSPARK_PYTHON"),
        ):
            value = _setting(file, name)
            if value and not environment.get(variable) and not (driver or workers):
                yield (
                    f"{file} has {name}={value}, and Spark looks for sources without it",
                    f"export PYSPARK_PYTHON={value}",
                )


def _defaults_files(environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("SPARK_HOME")
    directory = environment.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    file = Path(directory or os.devnull, "spark-defaults.conf")
    return [file] if file.is_file() else []


def _setting(file: Path, name: str) -> str | None:
    pattern = rf"^\s*{re.escape(name)}\s*(?:[=:\s])\s*(\S+)"
    values = re.findall(pattern, file.read_text(errors="replace"), re.MULTILINE)
    return values[-1] if values else None


def _as_spark_submit(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with the PYTHONPATH that `spark-submit` sets for an unpacked Spark in `SPARK_HOME`."""
    home = environment.get("SPARK_HOME")
    own = [str(Path(home, "python")), *map(str, Path(home, "python", "lib").glob("py4j-*.zip"))] if home else []
    return {**environment, "PYTHONPATH": os.pathsep.join([*own, *filter(None, [environment.get("PYTHONPATH")])])}


def _output(command: Sequence[str], seconds: float, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"it did not end within {seconds:g} s"
    return done.stdout.decode(errors="replace")


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["it says nothing"])[-1][:200]
