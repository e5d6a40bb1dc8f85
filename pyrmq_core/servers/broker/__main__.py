"""`python -m pyrmq_core.servers.broker`: runs a broker as a process, with RocketMQ's flags
(broker/BrokerStartup.java)."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import trio

from pyrmq_core.network.listener import raise_limit_of_files
from pyrmq_core.network.process_end import exit_status, stop_signals
from pyrmq_core.servers.broker.server import run_broker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig, unknown_names, unused_names
from pyrmq_core.servers.broker.settings.setting_values import read_config_file

log = logging.getLogger("pyrmq_core.servers.broker")

# How long another thread, such as one that encodes a file, may hold the interpreter lock while the event loop waits for
# it. With Python's default of 5 ms, a send of 1 ms took 20 ms.
SWITCH_SECONDS: Final = 0.0005
# The thresholds of the garbage collector. A waiting pull consists of about seven objects. With Python's defaults (700,
# 10, 10) the collector visited all objects thirteen times while 40,000 pulls arrived, and requests waited up to 1.5 s.
# With these thresholds it visits 30,000 young objects at a time, in a few milliseconds.
OBJECTS_BEFORE_COLLECTIONS: Final = (10_000, 2, 700)


def main(arguments: Sequence[str] | None = None, *, prog: str = "python -m pyrmq_core.servers.broker") -> int:
    """Runs a broker until a signal stops it. Returns 0, or 1 after a failure.

    For invalid arguments, argparse exits with 2.
    """
    options = _parser(prog).parse_args(arguments)
    return exit_status(lambda: _start(options), "broker")


def _start(options: argparse.Namespace) -> None:
    config = _configured(options)
    if options.print_config_item:
        _say("\n".join(f"{name}={value}" for name, value in config.to_properties().items()))
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    raise_limit_of_files()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*OBJECTS_BEFORE_COLLECTIONS)
    trio.run(_serve_until_stopped, config)


async def _serve_until_stopped(config: BrokerConfig) -> None:
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_announce, config, nursery)
            async for number in signals:
                log.info("%s: unregistering, flushing, closing", signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break


async def _announce(config: BrokerConfig, nursery: trio.Nursery) -> None:
    running = await nursery.start(run_broker, config)
    named = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
    _say(f"The broker[{running.name}, {running.address}] boot success. serializeType=JSON{named}")


def _configured(options: argparse.Namespace) -> BrokerConfig:
    settings = {} if options.config_file is None else read_config_file(options.config_file)
    if options.config_file is not None and not options.print_config_item:
        _say(f"load config properties file OK, {options.config_file}")
    if unknown := unknown_names(settings):
        sys.stderr.write(f"{options.config_file}: there is no such setting: {', '.join(unknown)}\n")
    config = BrokerConfig().with_settings(settings)
    if unused := unused_names(settings):
        sys.stderr.write(f"{options.config_file}: without effect here: {', '.join(unused)}\n")
    nameservers = options.namesrv_addr or config.namesrv_addr or os.environ.get("NAMESRV_ADDR", "")
    overrides = {"namesrvAddr": nameservers}
    if options.config_file is not None:
        overrides["brokerConfigPath"] = os.path.abspath(options.config_file)
    if options.port is not None:
        overrides["listenPort"] = str(options.port)
    if options.host is not None:
        overrides |= {"bindAddress": options.host, "brokerIP1": options.host}
    return config.with_settings(overrides)


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="A RocketMQ broker: stores messages and answers pulls. Listens on 127.0.0.1:10911 by "
        "default, and keeps its files in ~/store (storePathRootDir).",
    )
    add = parser.add_argument
    add("-c", "--configFile", dest="config_file", metavar="FILE", help="settings, RocketMQ's name=value")
    add("-p", "--printConfigItem", dest="print_config_item", action="store_true", help="print all settings and exit")
    add("-n", "--namesrvAddr", dest="namesrv_addr", metavar="ADDR", help="host:port[;host:port...]; or NAMESRV_ADDR")
    add("--port", type=int, help="listenPort, 10911 by default; 0 takes a free one")
    add("--host", metavar="IP", help="bindAddress and brokerIP1, 127.0.0.1 by default")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
