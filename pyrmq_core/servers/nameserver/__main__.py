"""`python -m pyrmq_core.servers.nameserver`: see `process`."""

import sys

from pyrmq_core.servers.nameserver.process import main

sys.exit(main())
