"""Builds the compiled decoder: a wheel in `build/native` and, for tests, the unpacked module in `site` below it.

python -m tests.support.native_build [--lint] [--if-possible]     `make native`

cargo fetches the crates of `native/versions.txt`, and the build ends with an error if a crate has another checksum.
`--lint` runs clippy, too. `--if-possible` ends without an error where cargo or its network is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final

from tests.support.apart import installed_apart
from tests.support.maven import ApacheUnavailable, alone

ROOT: Final = Path(__file__).parent.parent.parent
SOURCES: Final = ROOT / "native"
OUTPUT: Final = ROOT / "build" / "native"
SITE: Final = OUTPUT / "site"
MATURIN: Final = ("maturin==1.9.6",)
BUILD_SECONDS: Final = 900


class NotBuilt(Exception):
    """Raised with the reason for which there is no compiled decoder."""


def cargo() -> Path | None:
    """Returns the program cargo, which rustup installs outside of PATH until the next login."""
    paths = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
    path = shutil.which("cargo", path=paths)
    return None if path is None else Path(path)


def built_site() -> Path | None:
    """Returns the folder with the module, if it was built from the sources as they are."""
    stamp = SITE / "made-from"
    return SITE if stamp.is_file() and stamp.read_text() == _sources() else None


def main(*options: str) -> None:
    program = cargo()
    try:
        if program is None:
            raise NotBuilt("cargo is missing: install Rust 1.88 or later")
        OUTPUT.mkdir(parents=True, exist_ok=True)
        with alone(OUTPUT / "lock"):
            if "--lint" in options or built_site() is None:
                _lock(program)
            if "--lint" in options:
                _run(program, "fmt", "--check")
                _run(program, "clippy", "--release", "--locked", "--", "-D", "warnings")
            if built_site() is None:
                _build(program)
    except (NotBuilt, ApacheUnavailable) as error:
        print(f"pyrmq: no compiled decoder: {error}", file=sys.stderr)  # noqa: T201
        sys.exit("--if-possible" not in options)
    print(f"pyrmq: {', '.join(map(str, OUTPUT.glob('*.whl')))}", file=sys.stderr)  # noqa: T201


def _sources() -> str:
    files = [SOURCES / "Cargo.toml", SOURCES / "versions.txt", *sorted((SOURCES / "src").iterdir())]
    return "".join(file.read_text() for file in files)


def _lock(program: Path) -> None:
    """Has cargo choose the crates of `versions.txt`; raises `NotBuilt` unless they are these, to the checksum."""
    listed = {tuple(line.split()) for line in (SOURCES / "versions.txt").read_text().splitlines()}
    _run(program, "generate-lockfile")
    for name, version, _ in sorted(listed - _locked()):
        _run(program, "update", name, "--precise", version)
    if differences := sorted(listed ^ _locked()):
        raise NotBuilt(f"cargo's crates are not those of native/versions.txt: {differences}")


def _locked() -> set[tuple[str, ...]]:
    packages = tomllib.loads((SOURCES / "Cargo.lock").read_text())["package"]
    return {(crate["name"], crate["version"], crate["checksum"]) for crate in packages if "checksum" in crate}


def _build(program: Path) -> None:
    maturin = installed_apart("maturin", MATURIN) / "bin" / "maturin"
    for wheel in OUTPUT.glob("*.whl"):
        wheel.unlink()
    shutil.rmtree(SITE, ignore_errors=True)
    _run(maturin, "build", "--release", "--locked", "--out", str(OUTPUT), "--interpreter", sys.executable)
    (wheel,) = OUTPUT.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(SITE)
    (SITE / "made-from").write_text(_sources())


def _run(program: Path, *arguments: str) -> None:
    paths = os.pathsep.join([str(cargo_folder()), os.environ.get("PATH", "")])
    environment = os.environ | {"CARGO_TARGET_DIR": str(OUTPUT / "target"), "PATH": paths}
    done = subprocess.run(
        [program, *arguments],
        cwd=SOURCES,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise NotBuilt(
            f"{program.name} {arguments[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
        )


def cargo_folder() -> Path:
    program = cargo()
    assert program is not None
    return program.parent


if __name__ == "__main__":
    main(*sys.argv[1:])
