"""The zip of `docs/cluster.md` on a standalone cluster of two workers whose Python lacks the package."""

import json
import os
import shutil
import subprocess
import venv
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

from pyrmq_core.blocking import Admin, EmbeddedCluster
from tests.support.standalone import boot_standalone

ROOT = Path(__file__).parent.parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
OURS = ("pyrmq_core", "pyrmq_spark")
TRIO = ("trio", "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers")
# The packages of the workers' Python: pyarrow and numpy. `numpy.libs` is beside numpy on Linux alone.
INSTALLED = ("pyarrow", "numpy", "numpy.libs")
SECONDS = 500

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from pyrmq_spark import register

nameserver, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
options = {"nameServer": nameserver, "topic": topic}
frame = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as body")
frame.write.format("rocketmq").options(**options).mode("append").save()
read = spark.read.format("rocketmq").options(**options, minPartitions="4").load()
rows = read.selectExpr("count(distinct cast(body as string))").collect()[0][0]
executors = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getcwd()).distinct().count()
print(json.dumps([rows, executors]))
spark.stop()
"""

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


def bare_python(directory: Path) -> Path:
    """Makes a Python without the package, and returns its `bin` directory."""
    venv.create(directory / "bare", with_pip=False)
    only = directory / "only"
    only.mkdir()
    site_packages = Path(pyspark.__file__).parent.parent
    for name in INSTALLED:
        if (site_packages / name).is_dir():
            (only / name).symlink_to(site_packages / name)
    [packages] = (directory / "bare" / "lib").glob("python*/site-packages")
    (packages / "only.pth").write_text(f"{only}\n")
    return directory / "bare" / "bin"


def zipped(directory: Path) -> Path:
    """Writes the bundle that `pip install --no-compile --target` and `zip` make, and returns its path."""
    bundle = directory / "bundle"
    without = shutil.ignore_patterns("__pycache__", "tests", "_tests")
    for name in OURS + TRIO:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, bundle / name, ignore=without)
    return Path(shutil.make_archive(str(directory / "pyrmq"), "zip", bundle))


@pytest.fixture(autouse=True)
def java() -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")


def test_a_zip_and_register(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("zipped", queues=2)
    python = bare_python(tmp_path)
    lacks = [str(python / "python3"), "-c", "import pyarrow, numpy; import pyrmq_core"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
    environment |= {"PATH": f"{python}:{environment['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_HOME"] = str(SPARK_HOME)
    done = subprocess.run(lacks, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert "No module named 'pyrmq_core'" in done.stderr
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with boot_standalone(tmp_path, environment, workers=2) as spark:
        command = ["/bin/bash", str(SPARK_HOME / "bin" / "spark-submit"), "--master", spark.master]
        command += ["--py-files", str(zipped(tmp_path)), "--driver-memory", "512m", "--executor-memory", "512m"]
        for setting in ("ui.enabled=false", "driver.host=127.0.0.1", "driver.bindAddress=127.0.0.1"):
            command += ["--conf", f"spark.{setting}"]
        command += [str(job), cluster.nameserver, "zipped"]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [1000, 2]
    assert "1000 rows" in next(line for line in done.stderr.splitlines() if "pyrmq_spark.write.writers" in line)
