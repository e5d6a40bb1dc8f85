"""`EmbeddedCluster`: NameServers and brokers in this process, on free ports, for tests and for trying things out.

A test can answer, drop, delay or cut chosen requests of any server (`control`), and end servers as a crash does
(`kill`) or as a power failure does (`power_cut`). Importing this module loads the servers.
"""

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import CutConnection
from pyrmq_core.servers.embedded.cluster import EmbeddedCluster
from pyrmq_core.servers.embedded.controls import PASS, Control, ControlFunction, Pass

__all__ = ["PASS", "Control", "ControlFunction", "CutConnection", "EmbeddedCluster", "Pass", "TopicConfig"]
