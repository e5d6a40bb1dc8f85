"""`python -m pyrmq_core.tools.cli`: the `pyrmq` command where its script is not on the path."""

from pyrmq_core.tools.cli import main

main()
