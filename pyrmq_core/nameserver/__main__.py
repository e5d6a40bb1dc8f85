"""`python -m pyrmq_core.nameserver`: see `process`."""

import sys

from pyrmq_core.nameserver.process import main

sys.exit(main())
