"""The NameServer as a process: its arguments, settings and signals (namesrv/NamesrvStartup.java)."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from pyrmq_core.network import failure_in
from pyrmq_core.network.listener import raise_limit_of_files
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.process_end import exit_status, stop_signals
from pyrmq_core.servers.nameserver.config import (
    NOT_BUILT,
    WITHOUT_EFFECT,
    NameServerConfig,
    load_settings,
    unknown_settings,
)
from pyrmq_core.servers.nameserver.server import run_nameserver

log = line_logger(__name__)

# A registration of 10,000 topics creates as many short-lived objects. With the garbage collector's default threshold of
# 700, each registration would start a scan of all tables: for a million queues 50 ms, in which no request is answered.
YOUNG_OBJECTS: Final = 100_000


def main(arguments: Sequence[str] | None = None, *, prog: str = "python -m pyrmq_core.servers.nameserver") -> int:
    """Runs the command. Returns the exit status: 0, 1 after a failure, 130 (interrupt) or 141 (closed pipe).

    Wrong arguments exit with 2.
    """
    options = _parser(prog).parse_args(arguments)
    return exit_status(lambda: _start(options), "nameserver")


def _start(options: argparse.Namespace) -> None:
    config = configure(options.config_file, port=options.port, host=options.host)
    if options.print_config_item:
        sys.stdout.write("".join(f"{name}={value}\n" for name, value in config.to_settings().items()))
        return
    if options.config_file is not None:
        _say(f"load config properties file OK, {options.config_file}")
    run_process(config)


def configure(config_file: Path | None = None, *, port: int | None = None, host: str | None = None) -> NameServerConfig:
    """Returns the settings in a file, overridden by `port` and `host` unless they are None.

    Reports unknown names on standard error. Raises `InvalidArgument` for a bad value.
    """
    settings = {} if config_file is None else load_settings(config_file)
    for name, nearest in unknown_settings(settings).items():
        sys.stderr.write(f"{config_file}: {name} is no setting{f'; is {nearest} meant?' if nearest else ''}\n")
    if port is not None:
        settings["listenPort"] = str(port)
    if host is not None:
        settings["bindAddress"] = host
    return NameServerConfig().with_settings(settings)


def run_process(config: NameServerConfig) -> None:
    """Runs a NameServer until SIGTERM, SIGINT or SIGHUP, logging on standard error. May raise `RocketMQError`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    raise_limit_of_files()
    try:
        trio.run(_serve_until_stopped, config)
    except BaseExceptionGroup as failures:
        raise failure_in(failures) from None


async def _serve_until_stopped(config: NameServerConfig) -> None:
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with trio.open_nursery() as nursery:
            running = await nursery.start(run_nameserver, config)
            gc.set_threshold(YOUNG_OBJECTS)
            _say(f"The Name Server boot success. serializeType=JSON, address {running.address}")
            without_effect = sorted(config.others)
            if without_effect:
                log.info("settings without effect here: %s", ", ".join(without_effect))
            async for number in signals:
                log.info("%s: closing the port and all connections", signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="A RocketMQ NameServer: brokers register with it, clients ask it for routes. "
        "Listens on 127.0.0.1:9876 by default.",
        epilog=f"Accepted without effect: {', '.join(sorted(WITHOUT_EFFECT))}. "
        f"Refused when true: {', '.join(sorted(NOT_BUILT))}.",
    )
    add = parser.add_argument
    add("-c", "--configFile", dest="config_file", type=Path, metavar="FILE", help="settings, RocketMQ's name=value")
    add("-p", "--printConfigItem", dest="print_config_item", action="store_true", help="print all settings and exit")
    add("-n", "--namesrvAddr", dest="namesrv_addr", metavar="ADDR", help="accepted and without effect, as in RocketMQ")
    add("--port", type=int, help="listenPort, 9876 by default; 0 takes a free one")
    add("--host", help="bindAddress, 127.0.0.1 by default")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
