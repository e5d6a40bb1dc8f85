"""The settings for a session: the session of all Spark tests has them, so its Python workers use them."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from pyrmq_spark import RocketMQDataSource, session, session_settings
from pyrmq_spark.pyspark_releases import has_unix_sockets
from pyrmq_spark.python_path import sitecustomize

INSTALLED = Path(pyspark.__file__).parent
ARCHIVES = [str(archive) for archive in sorted((INSTALLED / "python" / "lib").glob("*.zip"), reverse=True)]
NAMES = ("pyspark", "py4j")
FIND = f"import importlib.util as u; print(*(u.find_spec(name).origin for name in {NAMES}))"


def test_workers_of_a_session_use_sockets_of_the_file_system(spark: SparkSession) -> None:
    assert session_settings().items() <= dict(spark.sparkContext.getConf().getAll()).items()
    rdd = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED"))
    assert (str(rdd.first()).lower() == "true") is has_unix_sockets()


def test_workers_of_a_session_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    rdd = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__)
    assert rdd.collect() == [pyspark.__file__]


def test_a_system_without_such_sockets_gets_no_setting_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "name", "nt")
    settings = session_settings()
    monkeypatch.undo()
    assert list(settings) == [session.HIDE_TRACEBACK, "spark.executorEnv.PYTHONPATH"]


def test_a_package_in_an_archive_names_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "FOLDER", tmp_path / "archive.zip" / "pyrmq_spark" / "python_path")
    sockets = ["spark.python.unix.domain.socket.enabled"] * has_unix_sockets()
    assert list(session_settings()) == [session.HIDE_TRACEBACK, *sockets]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver that has not looked for its Python yet, and whose environment names none."""
    monkeypatch.setattr(session, "_is_python_checked", False)
    for name in ("PYSPARK_PYTHON", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def another_python(folder: Path, prefix: str) -> str:
    """Makes a command `python3` that says that its environment is `prefix`; returns its folder."""
    command = folder / "python3"
    command.write_text(f"#!/bin/sh\necho {prefix}\n")
    command.chmod(0o755)
    return str(folder)


def test_another_python_on_the_path_is_one_warning(
    driver: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Spark starts it, and then finds no source, or no module in a task."""
    driver.setenv("PATH", another_python(tmp_path, "/usr"))
    session_settings()
    session_settings()
    assert RocketMQDataSource.name() == "rocketmq"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            "WARNING",
            "PYSPARK_PYTHON is not set, so Spark starts its Python processes by the command python3, and the first on "
            f"the path is {tmp_path}/python3, without the packages of this one: set PYSPARK_PYTHON={sys.executable} "
            "before the session starts",
        )
    ]


def test_a_driver_that_registers_the_source_alone_warns_too(
    driver: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    driver.setenv("PATH", str(tmp_path))
    RocketMQDataSource.name()
    assert "python3, and no python3 is on the path: set PYSPARK_PYTHON=" in caplog.text


@pytest.mark.parametrize("environment", [{"PYSPARK_PYTHON": "python3"}, {"SPARK_REMOTE": "sc://host"}])
def test_a_python_that_is_named_and_one_of_a_server_are_no_warning(
    driver: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, environment: dict[str, str]
) -> None:
    for name, value in (environment | {"PATH": another_python(tmp_path, "/usr")}).items():
        driver.setenv(name, value)
    session_settings()
    assert not caplog.records


def test_a_link_or_script_that_starts_this_python_is_no_warning(
    driver: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    driver.setenv("PATH", another_python(tmp_path, sys.prefix))
    session_settings()
    assert not caplog.records


def python(code: str, *path: str, last: Sequence[str] = ()) -> str:
    """Returns what a Python process prints that has this path after the archives, as Spark orders them.

    `last` are the last words of its command line. The folder of PySpark itself comes at the end: in an environment that
    pip made it would come there anyway.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*ARCHIVES, *path, str(INSTALLED.parent)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *last], env=environment, capture_output=True, text=True, timeout=280, check=True
    )
    assert not done.stderr
    return done.stdout.strip()


def test_the_archives_of_an_installed_pyspark_give_way_to_it() -> None:
    archived = [f"{archive}/{name}/__init__.py" for archive, name in zip(ARCHIVES, NAMES, strict=True)]
    assert python(FIND).split() == archived
    assert python(FIND, str(session.FOLDER)) == f"{pyspark.__file__} {py4j.__file__}"


def test_archives_stay_where_another_pyspark_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert python(FIND, str(tmp_path), str(session.FOLDER)).startswith(ARCHIVES[0])


def test_archives_that_belong_to_no_installed_pyspark_stay(tmp_path: Path) -> None:
    strange = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    code = f"import sys; print({str(strange)!r} in sys.path, *sys.path)"
    output = python(code, str(strange), str(session.FOLDER))
    assert output.startswith("True")
    assert ARCHIVES[0] not in output


@pytest.mark.parametrize("given", [None, "2"])
def test_a_process_computes_with_one_thread_if_none_are_set(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert python("import os; print(os.environ['OMP_NUM_THREADS'])", str(session.FOLDER)) == (given or "1")


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list a process's threads here")
def test_loading_numpy_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert python("import os, numpy; print(len(os.listdir('/proc/self/task')))", str(session.FOLDER)) == "1"


@pytest.mark.parametrize(("program", "is_rare"), [(sitecustomize.QUERY_PROGRAM, True), ("pyspark.daemon", False)])
def test_a_query_s_process_alone_collects_garbage_more_rarely(program: str, is_rare: bool) -> None:
    assert importlib.util.find_spec(program) is not None
    code = "import gc; print(gc.isenabled(), *gc.get_threshold())"
    is_on, first, *others = python(code, str(session.FOLDER), last=["-m", program]).split()
    _, usual, *usual_others = python(code).split()
    assert is_on == "True"
    assert (int(first) > 10 * int(usual)) is is_rare
    assert (first == usual) is not is_rare
    assert others == usual_others


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the daemon loads nothing")
def test_spark_s_daemon_loads_what_its_workers_need_but_not_this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread, since a fork has none of them, and a lock that one held would stay held."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    names = ["pyspark.worker", "numpy", "pyarrow", "trio", "pyrmq_spark", "pyrmq_core", "pyspark.daemon"]
    code = f"import os, sys; print(len(os.listdir('/proc/self/task')), *[name in sys.modules for name in {names}])"
    daemon = ["-m", "pyspark.daemon", "pyspark.worker"]
    expected = [True, True, True, True, False, False, False]
    assert python(code, str(session.FOLDER), last=daemon) == " ".join(map(str, [1, *expected]))
    for other in (["-m", sitecustomize.QUERY_PROGRAM], ["-m", "pyspark.daemon"], ["pyspark.daemon", "x", "y"]):
        assert python(code, str(session.FOLDER), last=other).split()[2:5] == ["False"] * 3
    for module in ("no_such_worker", "pyspark.sql.worker.create_data_source"):  # the second loads none of them
        assert python(code, str(session.FOLDER), last=["-m", "pyspark.daemon", module]).split()[2:5] == ["False"] * 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert python(code, str(session.FOLDER), last=daemon).split()[:5] == ["1", *["False"] * 4]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the daemon loads nothing")
def test_forks_of_the_daemon_draw_different_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code = """if True:
        import os, numpy.random, random
        from sitecustomize import load_before_forks
        load_before_forks("pyspark.worker")
        for _ in range(2):
            if os.fork() == 0:
                print(numpy.random.random(), random.random(), flush=True)
                os._exit(0)
            os.wait()
    """
    numbers = python(code, str(session.FOLDER)).split()
    assert len(set(numbers)) == len(numbers) == 4


def test_the_sitecustomize_that_is_hidden_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    code = "import sitecustomize; print(sitecustomize.__file__)"
    assert python(code, str(session.FOLDER), str(tmp_path)).split() == ["theirs", f"{tmp_path}/sitecustomize.py"]
