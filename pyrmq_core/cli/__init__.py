"""The `pyrmq` command; its libraries come with the extra `cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point; without click and rich it says what to install."""
    try:
        from pyrmq_core.cli.commands import pyrmq
    except ImportError as error:
        print(f'the pyrmq command needs {error.name}: pip install "pyrmq-spark[cli]"', file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:  # before there is anything that could be interrupted
        raise SystemExit(130) from None
    pyrmq(prog_name="pyrmq")
