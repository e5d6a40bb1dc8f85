"""`python -m pyrmq_core.servers.nameserver`: runs a NameServer, by the module `process`."""

import sys

from pyrmq_core.servers.nameserver.process import main

sys.exit(main())
