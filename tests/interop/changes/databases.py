"""A real PostgreSQL and a real MariaDB in a temporary folder, on a free loopback port, without the system's service.

    with boot_postgresql() as database:
        session = database.session("shop")
        session.run("select 1")  # ["1"]

A root's tests run the server as `nobody`: neither server starts as root. Statements go through the server's own
command-line client, so that no driver changes a value on its way. A server comes from Debian's `postgresql` and
`mariadb-server`, or from any other installation with the same programs.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.apache import free_port
from tests.support.jvm import JavaProcess

BOOT_SECONDS: Final = 90.0
SETUP_SECONDS: Final = 120.0
DATABASE_ZONE: Final = {"postgresql": "Asia/Kolkata", "mariadb": "+08:00"}
ERROR: Final = re.compile(r"^(?:psql:.*|ERROR(?: \d+ \(\w+\))?.*?): (.*)")
MARK: Final = "-- end of the statement --"


class DatabaseUnavailable(Exception):
    """The error of a machine without the database's programs; the text says what to install."""


class StatementError(Exception):
    """The error of a statement, in the database's words."""


class Session:
    """A connection by the database's command-line client, which runs one statement after another."""

    def __init__(self, command: Sequence[str], mark: str) -> None:
        self._mark = mark
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *statements: str) -> list[str]:
        """Returns the lines that the last statement wrote; raises `StatementError` for the first that failed."""
        lines: list[str] = []
        for statement in statements:
            self.begin(statement)
            lines = self.finish()
        return lines

    def begin(self, statement: str) -> None:
        """Begins a statement that may wait for another session; `finish` waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{statement};\n{self._mark}\n")
        self._process.stdin.flush()

    def finish(self) -> list[str]:
        """Returns the lines that the statement wrote; raises `StatementError` if it failed."""
        assert self._process.stdout is not None
        lines: list[str] = []
        errors: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == MARK:
                break
            match = ERROR.match(line)
            (errors if match else lines).append(line.rstrip("\n"))
        else:
            raise StatementError(f"the client ended with {self._process.wait()}: {lines[-3:]}")
        if errors:
            raise StatementError(errors[0])
        return lines

    def close(self) -> None:
        """Ends the client, and with it the open transaction."""
        self._process.kill()
        self._process.communicate()


class Database:
    """A running server."""

    kind: str

    def __init__(self, home: Path, port: int, process: JavaProcess) -> None:
        self.home = home
        self.port = port
        self.process = process
        self._sessions: list[Session] = []

    def session(self, name: str = "") -> Session:
        """Returns a new connection to a database of this name, which ends with the server."""
        session = self._connect(name)
        self._sessions.append(session)
        return session

    def version(self) -> str:
        raise NotImplementedError

    def has_waiting_session(self, session: Session) -> bool:
        """Returns whether any session waits for another's lock; `session` is a free one to look with."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the sessions and the server."""
        for session in self._sessions:
            session.close()
        self.process.kill()

    def _connect(self, name: str) -> Session:
        raise NotImplementedError


class PostgreSQL(Database):
    """A server whose superuser `postgres` needs no password."""

    kind = "postgresql"

    def version(self) -> str:
        return self.session("postgres").run("show server_version")[0].split()[0]

    def has_waiting_session(self, session: Session) -> bool:
        return session.run("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") != ["0"]

    def _connect(self, name: str) -> Session:
        client = [_program("psql", "postgresql-client"), "-X", "-q", "-A", "-t"]
        command = [*client, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", name or "postgres"]
        return Session(command, rf"\echo {MARK}")


class MariaDB(Database):
    """A server whose user `root` needs no password."""

    kind = "mariadb"

    def version(self) -> str:
        return self.session().run("select version()")[0].split("-")[0]

    def has_waiting_session(self, session: Session) -> bool:
        # Not information_schema.innodb_trx: InnoDB keeps its rows as they are while they are read every 0.1 s.
        (line,) = session.run("show global status like 'Innodb_row_lock_current_waits'")
        return not line.endswith("\t0")

    def _connect(self, name: str) -> Session:
        client = [_program("mariadb", "mariadb-client"), "--no-defaults", "-N", "-B", "-r", "-n", "-f"]
        command = [*client, "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "--default-character-set=utf8mb4"]
        return Session([*command, *([name] if name else [])], f"select '{MARK}';")


@contextmanager
def boot_postgresql(*settings: str) -> Iterator[PostgreSQL]:
    """Yields a PostgreSQL with logical decoding; `settings` are `name=value`. Removes its files on leaving."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if os.path.isdir("/usr/lib/postgresql") else []
    folder = f"{programs[-1]}{os.pathsep}" if programs else ""
    with _folder("postgresql") as home:
        data, port = home / "data", free_port((0,))
        initdb = _program("initdb", "postgresql", folder)
        _set_up([initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"])
        server = [_program("postgres", "postgresql", folder), "-D", str(data), "-p", str(port), "-k", str(home)]
        for setting in (
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "wal_level=logical",
            "max_replication_slots=20",
            "max_wal_senders=20",
            f"timezone={DATABASE_ZONE['postgresql']}",
            *settings,
        ):
            server += ["-c", setting]
        process = JavaProcess("PostgreSQL", [*_as_nobody(), *server], home / "server.log")
        database = PostgreSQL(home, port, process)
        try:
            process.start()
            process.wait_until(lambda: process.wrote("ready to accept connections"), BOOT_SECONDS)
            yield database
        finally:
            database.close()


@contextmanager
def boot_mariadb(*settings: str) -> Iterator[MariaDB]:
    """Yields a MariaDB with a full row log; `settings` are options of mariadbd. Removes its files on leaving."""
    with _folder("mariadb") as home:
        data, port = home / "data", free_port((0,))
        install = [_program("mariadb-install-db", "mariadb-server"), "--no-defaults", f"--datadir={data}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        _set_up(install)
        server = [
            _program("mariadbd", "mariadb-server", "/usr/sbin:"),
            "--no-defaults",
            f"--datadir={data}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={home / 'socket'}",
            f"--pid-file={home / 'pid'}",
            "--log-bin=mysql-bin",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--server-id=1",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M",
            "--character-set-server=utf8mb4",
            f"--default-time-zone={DATABASE_ZONE['mariadb']}",
            *settings,
        ]
        process = JavaProcess("MariaDB", [*_as_nobody(), *server], home / "server.log")
        database = MariaDB(home, port, process)
        try:
            process.start()
            process.wait_until(lambda: process.wrote("ready for connections"), BOOT_SECONDS)
            yield database
        finally:
            database.close()


def _program(name: str, package: str, folder: str = "") -> str:
    path = shutil.which(name, path=f"{folder}{os.environ.get('PATH', '')}")
    if path is None:
        raise DatabaseUnavailable(f"{name} is missing: install it (for example: apt-get install {package})")
    return path


def _as_nobody() -> list[str]:
    return ["setpriv", "--reuid=nobody", "--clear-groups"] if os.getuid() == 0 else []


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """Yields a new folder of the server's user, memory-backed where possible; removes it on leaving."""
    memory = Path("/dev/shm")
    within = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    home = Path(tempfile.mkdtemp(prefix=f"pyrmq-{name}-", dir=within))
    if os.getuid() == 0:
        shutil.chown(home, "nobody")
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _set_up(command: Sequence[str]) -> None:
    done = subprocess.run([*_as_nobody(), *command], capture_output=True, text=True, timeout=SETUP_SECONDS)
    if done.returncode:
        raise DatabaseUnavailable(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
