"""`python -m pyrmq_core.tools.cli`: the `pyrmq` command where no script of that name is on the path."""

from pyrmq_core.tools.cli import main

main()
