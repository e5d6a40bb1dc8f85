"""`pyrmq doctor`: its report on Pythons, Javas and servers of every kind, and when it ends with 1."""

from __future__ import annotations

import json
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import BrokerData
from pyrmq_core.tools.cli import doctor
from pyrmq_core.tools.cli.commands import pyrmq
from pyrmq_core.tools.cli.doctor import FAIL, OK, WARN, check_java, check_python, judge

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def java(home: Path, version: str) -> str:
    """Makes a JAVA_HOME whose Java prints this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return str(home)


def run(nameserver: str | None, **environment: str | None) -> tuple[int, list[dict[str, str]]]:
    """Returns exit code and rows, with these of Spark's variables alone."""
    plain = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR", "NAMESRV_ADDR"))
    arguments = ["doctor", "--json", *(["-n", nameserver] if nameserver else [])]
    result = CliRunner().invoke(pyrmq, arguments, env={**plain, "PYTHONPATH": str(ROOT), **environment})
    rows: list[dict[str, str]] = json.loads(result.output)
    return result.exit_code, rows


def rows_of(rows: list[dict[str, str]], check: str) -> list[tuple[str, str, str]]:
    return [(row["status"], row["found"], row["advice"]) for row in rows if row["check"] == check]


def test_all_is_well(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    home = java(tmp_path, "17.0.15")
    code, rows = run(cluster.nameserver, PYSPARK_PYTHON=sys.executable, JAVA_HOME=home)
    assert (code, {row["status"] for row in rows}) == (0, {OK}), rows
    assert [row["check"] for row in rows] == [
        *("python", "pyspark", "pyrmq", "pyarrow", "numpy", "decoder", "java", "nameserver", "broker", "broker")
    ]
    assert rows[0]["found"] == f"{sys.executable} (PYSPARK_PYTHON), {sys.version.split()[0]}"
    assert rows[2]["found"].endswith("found by its name")
    assert rows[5]["found"] == "pure: PYRMQ_NATIVE=0"
    assert rows[6]["found"] == f"{home}/bin/java, 17.0.15"
    assert rows[7]["found"] == f"{cluster.nameserver}, 2 brokers"
    assert [row["found"] for row in rows[8:]] == [f"{name} (0) {at}" for name, at in sorted(cluster.brokers.items())]
    lines = CliRunner().invoke(
        pyrmq, ["doctor", "-n", cluster.nameserver], env={"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": home}
    )
    assert lines.exit_code == 0
    assert [line.split()[:2] for line in lines.output.splitlines()] == [[row["status"], row["check"]] for row in rows]


def test_a_python_that_lacks_the_package(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    code, rows = run(None, PYSPARK_PYTHON=python, PYTHONPATH="", JAVA_HOME=java(tmp_path / "java", "21.0.2"))
    assert code == 1
    for package in ("pyspark", "pyarrow", "numpy"):
        [(status, finding, advice)] = rows_of(rows, package)
        assert (status, finding) == (FAIL, f"ModuleNotFoundError: No module named '{package}'")
        assert "pip install" in advice
    [(status, finding, advice)] = rows_of(rows, "pyrmq")
    assert status == FAIL
    assert "cannot import pyrmq_core" in finding
    assert f"export PYSPARK_PYTHON={sys.executable}" in advice
    assert rows_of(rows, "nameserver") == [
        (WARN, "none is named", "-n host:port, or export NAMESRV_ADDR=host:port"),
    ]


def test_a_driver_python_that_is_none(tmp_path: Path) -> None:
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\necho 'no such option: -c'; exit 2\n")
    jupyter.chmod(0o755)
    given = {"PYSPARK_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    [check] = check_python({**given, "PYSPARK_DRIVER_PYTHON": str(jupyter)})
    assert (check.status, check.advice) == (FAIL, "unset PYSPARK_DRIVER_PYTHON")
    assert "no such option: -c" in check.found
    [check] = check_python({**given, "PYSPARK_DRIVER_PYTHON": "no-such-program"})
    assert (check.status, check.advice) == (FAIL, "unset PYSPARK_DRIVER_PYTHON")
    [check] = check_python({"PYSPARK_PYTHON": "./environment/bin/python", "PATH": "/usr/bin:/bin"})
    assert check.found == "./environment/bin/python (PYSPARK_PYTHON) is no program here"


def test_settings_that_do_harm(tmp_path: Path) -> None:
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text("# comment\nspark.pyspark.python   /opt/python\nspark.pyspark.driver.python=/opt/other\n")
    given = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    checks = check_python({**given, "SPARK_CONF_DIR": str(tmp_path)})
    assert [(check.check, check.status) for check in checks[:3]] == [("python", OK), ("python", WARN), ("python", WARN)]
    assert "neither PYSPARK_PYTHON nor PYSPARK_DRIVER_PYTHON is set" in checks[0].found
    assert "spark.pyspark.python=/opt/python" in checks[2].found
    assert checks[2].advice == "export PYSPARK_PYTHON=/opt/python"
    named = {**given, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert [check.status for check in check_python(named) if check.check == "python"] == [OK]
    both = {**given, "PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    [_, warning] = [check for check in check_python(both) if check.check == "python"]
    assert (warning.status, warning.advice) == (WARN, "unset it: PYSPARK_PYTHON is enough")


def test_a_module_that_takes_all_sources_away(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('not today')")
    given = {"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    [broken] = [check for check in check_python(given) if check.status != OK]
    assert (broken.check, broken.status) == ("sources", FAIL)
    assert broken.found == "module pyspark_broken raises RuntimeError: not today"


def test_a_package_that_is_importable_but_not_found(tmp_path: Path) -> None:
    for package in ("pyrmq_core", "pyrmq_spark"):
        (tmp_path / package).symlink_to(ROOT / package)
    venv.create(tmp_path / "bare", with_pip=False)
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    given = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{installed}"}
    checks = check_python({**given, "PYSPARK_PYTHON": str(tmp_path / "bare" / "bin" / "python")})
    [check] = [check for check in checks if check.status != OK]
    assert (check.check, check.status) == ("pyrmq", WARN)
    assert "pyrmq_spark.register(spark)" in check.advice


@pytest.mark.parametrize(
    ("version", "status"),
    [("17.0.15", OK), ("21", OK), ("24.0.1", WARN), ("11.0.2", FAIL), ("1.8.0_392", FAIL)],
)
def test_javas(tmp_path: Path, version: str, status: str) -> None:
    check = check_java({"JAVA_HOME": java(tmp_path, version), "PATH": "/usr/bin:/bin"})
    assert check.status == status
    assert check.found.endswith(f"/bin/java, {version}")


def test_a_wrapper_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "JAVA_SECONDS", 0.5)
    home = java(tmp_path, "17")
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nsleep 300\necho over\n")  # its child holds its output, too
    before = time.monotonic()
    check = check_java({"JAVA_HOME": home, "PATH": "/usr/bin:/bin"})
    assert (check.status, time.monotonic() - before < 100) == (FAIL, True)
    assert check.found.endswith("it did not end within 0.5 s")


@pytest.mark.parametrize(("version", "status"), [("4.0.0", OK), ("4.10.1", OK), ("3.9.9", FAIL), ("3.5.1", FAIL)])
def test_pysparks(version: str, status: str) -> None:
    versions = {"pyspark": version, "pyarrow": "26.0.1", "numpy": "2.4.6", "pyrmq_core": "0.1", "pyrmq_spark": ""}
    [check, *others] = judge({"versions": versions, "errors": {}, "sources": ["pyspark_rocketmq"]}, "", "")
    assert (check.check, check.status) == ("pyspark", status)
    assert {other.status for other in others} == {OK}


@pytest.mark.parametrize("status", [OK, WARN])
def test_the_decoder_is_named(status: str) -> None:
    decoder = {"status": status, "reason": "pyrmq-native 0.1.0"}
    errors = dict.fromkeys(("pyspark", "pyarrow", "numpy"), "-")
    checks = judge({"versions": {}, "errors": errors, "sources": [], "decoder": decoder}, "", "")
    assert [(check.status, check.found) for check in checks if check.check == "decoder"] == [
        (status, "pyrmq-native 0.1.0")
    ]


def test_no_java(tmp_path: Path) -> None:
    assert check_java({"PATH": str(tmp_path)}).found == "there is none"
    check = check_java({"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)})
    assert (check.status, check.found) == (FAIL, f"JAVA_HOME={tmp_path} has no bin/java")


def test_servers_that_are_away(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    given = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": java(tmp_path, "17.0.15")}
    closed_port = "127.0.0.1:1"
    code, rows = run(closed_port, **given)
    [(status, finding, _)] = rows_of(rows, "nameserver")
    assert (code, status) == (1, FAIL)
    assert closed_port in finding
    code, rows = run(f"{closed_port};{cluster.nameserver}", **given)  # clients go on to the next one
    assert (code, [row[0] for row in rows_of(rows, "nameserver")]) == (0, [WARN, OK])

    async def with_others(request: Command, peer: Peer) -> Command:
        brokers = {
            name: BrokerData("DefaultCluster", name, dict(enumerate(addresses)))
            for name, addresses in {
                "broker-a": (cluster.brokers["broker-a"], "127.0.0.1:2"),
                "broker-c": ("127.0.0.1:3",),
            }.items()
        }
        return ClusterInfo(brokers, {"DefaultCluster": tuple(brokers)}).to_command()

    cluster.control(RequestCode.GET_BROKER_CLUSTER_INFO, with_others, times=1)
    code, rows = run(cluster.nameserver, **given)
    assert code == 1
    assert [row[0] for row in rows_of(rows, "broker")] == [OK, WARN, FAIL]
    assert "broker-c (0) 127.0.0.1:3: " in rows_of(rows, "broker")[2][1]
