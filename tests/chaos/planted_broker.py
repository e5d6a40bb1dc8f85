"""A broker's process, with the fault that the environment names, and with orders of the run (`orders`)."""

import sys
from pathlib import Path

from pyrmq_core.servers.broker.__main__ import main
from tests.chaos.orders import take_orders
from tests.chaos.planted import plant_by_environment

if __name__ == "__main__":
    plant_by_environment()
    take_orders(Path(sys.argv[sys.argv.index("-c") + 1]).parent)
    sys.exit(main())
