"""A broker's process, with the fault that the environment names."""

import sys

from pyrmq_core.broker.__main__ import main
from tests.chaos.planted import plant_by_environment

if __name__ == "__main__":
    plant_by_environment()
    sys.exit(main())
