"""`python -m pyrmq_core.cli`: the `pyrmq` command where no script of that name is on the path."""

from pyrmq_core.cli import main

main()
