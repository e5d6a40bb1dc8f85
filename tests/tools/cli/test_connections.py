"""The options of the connection, on servers that take only signed requests over TLS: keys, files, TLS, namespace."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.tools.cli.commands import pyrmq
from pyrmq_core.tools.cli.connections import OPTIONS, Connection, ConnectionOption, TlsOptions
from tests.support import commands
from tests.support.certificates import Certificates
from tests.support.commands import PROGRAM, asks_servers
from tests.support.guarded import AUTH_5, KEY, SECRET
from tests.support.web import page_of

WRONG = "not-the-s3cret"


@dataclass(frozen=True)
class Terminal:
    """A terminal whose environment has what the guarded servers want, but for what a test leaves out or changes."""

    environment: Mapping[str, str]

    def run(self, *arguments: str, **changes: str) -> Result:
        return CliRunner().invoke(pyrmq, arguments, env={**self.environment, **changes})

    def text(self, *arguments: str, **changes: str) -> str:
        result = self.run(*arguments, **changes)
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def terminal(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    encrypted = {**certificates.server(), **certificates.calls(), **AUTH_5}
    nameserver = {**encrypted, "authConfigPath": str(tmp_path_factory.mktemp("auth") / "auth")}
    with EmbeddedCluster(settings=encrypted, nameserver_settings=nameserver) as cluster:
        yield Terminal(
            {
                "NAMESRV_ADDR": cluster.nameserver,
                "PYRMQ_ACCESS_KEY": KEY,
                "PYRMQ_SECRET_KEY": SECRET,
                "PYRMQ_TLS_CA": str(certificates.trust),
            }
        )


def test_every_command_that_calls_servers_has_all_of_them() -> None:
    names = {name for name, command in commands.commands().items() if asks_servers(command)}
    assert len(names) >= 12
    for name in names:
        command = commands.commands()[name]
        assert sum(isinstance(option, ConnectionOption) for option in command.params) == len(OPTIONS), name


def test_they_stand_last_in_the_help() -> None:
    shown = CliRunner().invoke(pyrmq, ["topic", "create", "--help"]).output
    own, _, connection = shown.partition("Connection:")
    assert "--batch" in own
    assert "--tls-ca" not in own
    assert all(option in connection for option in ("--namesrv-addr", "--secret-key", "--tls-ca", "--timeout"))
    assert "--tls-key-password" not in shown


def test_commands_that_send_read_and_change_are_signed_and_encrypted(terminal: Terminal) -> None:
    assert terminal.text("topic", "create", "Signed", "-w", "1", "-r", "1").startswith("topic Signed is there")
    assert "SEND_OK" in terminal.text("send", "Signed", "a body")
    assert json.loads(terminal.text("topic", "stats", "Signed", "--json"))[0]["messages"] == 1
    assert terminal.text("tail", "Signed").endswith(" a body\n")
    assert terminal.text("consume", "Signed", "-g", "Members", "--from", "earliest", "--max", "1").endswith(" a body\n")
    terminal.text("kv", "put", "N", "key", "value")
    assert terminal.text("kv", "get", "N", "key") == "value\n"
    checks = json.loads(terminal.run("doctor", "--json").output)
    assert {check["check"]: check["status"] for check in checks if check["check"] in ("nameserver", "broker")} == {
        "nameserver": "OK",
        "broker": "OK",
    }


@pytest.mark.parametrize(
    "content",
    [f"accessKey: {KEY}\nsecretKey: {SECRET}\n", f'accessKey="{KEY}"\n# mine\nsecretKey="{SECRET}"\n'],
    ids=["as tools.yml", "as properties"],
)
def test_keys_of_a_file(terminal: Terminal, content: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    without = {"PYRMQ_ACCESS_KEY": "", "PYRMQ_SECRET_KEY": ""}
    assert "TBW102" in terminal.text("topic", "list", "-a", "--credentials", str(file), **without)
    assert "TBW102" in terminal.text("topic", "list", "-a", PYRMQ_CREDENTIALS=str(file), **without)


@pytest.mark.parametrize("content", [b"", f"accessKey: {KEY}\nsecret: {SECRET}\n".encode(), b"\xff", b"a=\\u12"])
def test_a_file_without_keys(terminal: Terminal, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    failed = terminal.run("topic", "list", "--credentials", str(file))
    assert failed.exit_code == 1
    assert failed.output == f"Error: --credentials {file}: it has no lines accessKey: KEY and secretKey: SECRET\n"


def test_wrong_keys_are_refused_in_a_line_without_them(terminal: Terminal) -> None:
    for changes in ({"PYRMQ_SECRET_KEY": WRONG}, {"PYRMQ_ACCESS_KEY": "", "PYRMQ_SECRET_KEY": ""}):
        failed = terminal.run("topic", "list", **changes)
        assert failed.exit_code == 1
        assert "NO_PERMISSION" in failed.output
        assert failed.output.count("\n") == 1
        assert WRONG not in failed.output
        assert SECRET not in failed.output
    half = terminal.run("topic", "list", PYRMQ_SECRET_KEY="")
    assert (half.exit_code, half.output) == (
        1,
        "Error: an access key and a secret key belong together; give both or neither\n",
    )


def test_secrets_are_in_no_repr() -> None:
    shown = repr(Connection(secret_key=SECRET, security_token=SECRET, tls=TlsOptions(key_password=SECRET)))
    assert SECRET not in shown


def test_a_certificate_that_nothing_vouches_for(terminal: Terminal) -> None:
    failed = terminal.run("topic", "list", "--tls", PYRMQ_TLS_CA="")
    assert failed.exit_code == 1
    assert "trust its authority" in failed.output
    assert failed.output.count("\n") == 1
    assert "TBW102" in terminal.text("topic", "list", "-a", "--tls-verify", "none", PYRMQ_TLS_CA="")


def test_what_each_check_of_a_certificate_checks(certificates: Certificates) -> None:
    def checks(**options: Any) -> tuple[bool, str]:
        context = TlsOptions(authority=str(certificates.trust), **options).context()
        assert context is not None
        return context.check_hostname, context.verify_mode.name

    assert checks() == checks(verify="full") == (True, "CERT_REQUIRED")
    assert checks(verify="ca") == (False, "CERT_REQUIRED")
    assert checks(verify="none") == (False, "CERT_NONE")
    assert TlsOptions().context() is None


def test_certificates_of_clients(tmp_path: Path) -> None:
    locked = Certificates(tmp_path, password="open-sesame")
    given: dict[str, Any] = {"certificate": str(locked.cert), "key": str(locked.key)}
    assert TlsOptions(**given, key_password="open-sesame").context() is not None
    for wrong in ({}, {"key_password": "closed"}, {"key": str(locked.trust)}):
        with pytest.raises(InvalidArgument, match=r"no certificate with its key in PEM form"):
            TlsOptions(**{**given, **wrong}).context()
    with pytest.raises(InvalidArgument, match=r"--tls-ca .*no certificates in PEM form"):
        TlsOptions(authority=str(locked.key)).context()
    with pytest.raises(InvalidArgument, match=r"give --tls-cert"):
        TlsOptions(key=str(locked.key)).context()


def test_a_namespace_stands_before_topics(terminal: Terminal) -> None:
    inside = {"PYRMQ_NAMESPACE": "tenant"}
    terminal.text("topic", "create", "Inner", "-w", "1", "-r", "1", **inside)
    terminal.text("send", "Inner", "theirs", **inside)
    assert terminal.text("topic", "list", "--namespace", "tenant").split() == ["topic", "Inner"]
    assert "tenant%Inner" in terminal.text("topic", "list")
    assert terminal.text("tail", "Inner", **inside).endswith(" theirs\n")
    assert terminal.run("tail", "Inner").exit_code == 1
    consumed = terminal.text("consume", "Inner", "-g", "Inside", "--from", "earliest", "--max", "1", **inside)
    assert consumed.endswith(" theirs\n")


def test_the_time_that_a_request_may_take(terminal: Terminal) -> None:
    assert terminal.run("topic", "list", "--timeout", "0").exit_code == 2
    assert terminal.run("topic", "list", "--timeout", "nan").exit_code != 0
    with_time = terminal.run("topic", "list", "--timeout", "0.25", NAMESRV_ADDR="10.255.255.1:9")
    assert with_time.exit_code == 1
    assert with_time.output.count("\n") == 1


def test_shells_complete_commands(tmp_path: Path) -> None:
    environment = {**os.environ, "_PYRMQ_COMPLETE": "bash_complete", "COMP_WORDS": "pyrmq topic cre", "COMP_CWORD": "2"}
    done = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["plain,create"]
    environment["_PYRMQ_COMPLETE"] = "zsh_source"
    script = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "#compdef pyrmq" in script


def test_no_option_of_the_connection_hides_another() -> None:
    for name, command in commands.commands().items():
        options = [text for parameter in command.params for text in parameter.opts]
        assert len(options) == len(set(options)), name
        parameters = [parameter.name for parameter in command.params]
        assert len(parameters) == len(set(parameters)), name


@pytest.fixture
def plain() -> Iterator[str]:
    with EmbeddedCluster(topics={"Orders": 1}) as cluster:
        yield cluster.nameserver


def test_a_page_lists_the_nameservers(plain: str) -> None:
    """It wins over NAMESRV_ADDR, and not over `-n`, which is another way to say the same."""
    with page_of(plain) as (url, paths):
        environment = {"PYRMQ_NAMESERVER_URL": url, "PYRMQ_UNIT_NAME": "east", "NAMESRV_ADDR": "127.0.0.1:1"}
        for words in (("topic", "list"), ("health",), ("doctor",), ("nameserver", "config")):
            result = CliRunner().invoke(pyrmq, words, env=environment)
            assert result.exit_code == 0 or words == ("doctor",), result.output
            assert plain in result.output or words[0] == "topic", result.output
        assert set(paths) == {"/rocketmq/nsaddr-east?nofix=1"}
        both = CliRunner().invoke(pyrmq, ("topic", "list", "-n", plain), env=environment)
        assert both.exit_code == 1
        assert "nameserver names addresses, nameserver_url says where to fetch them" in both.output


def test_a_namespace_of_5_goes_with_each_request(plain: str) -> None:
    """Our servers pass it over: the names stay as they are."""
    both = CliRunner().invoke(pyrmq, ("topic", "list", "-n", plain, "--namespace-v2", "tenant"))
    assert both.output.split() == ["topic", "Orders"]
