"""The `pyrmq` command, whose libraries come with the extra `cli`.

`commands` lists all commands, and imports each when it is used. They are in `admin`, `consume`, `doctor`, `export`,
`import_files`, `search`, `send` (with `message_lines`), `tail` and the folders `groups`, `operation` and `serving`. The
commands share these modules:

    connections      the options for connecting to servers
    servers          click's groups of commands, and the event loop in which a command runs
    tables           the output as JSON, or as a table (`drawn_tables`)
    formats          the output formats of messages
    name_completion  the names of topics, groups and brokers for a shell's completion
    progress         a progress line
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command. If click or rich is missing, prints what to install."""
    try:
        from pyrmq_core.tools.cli.commands import pyrmq
    except ImportError as error:
        print(f'the pyrmq command needs {error.name}: pip install "pyrmq-spark[cli]"', file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:  # Ctrl-C while the modules are loaded
        raise SystemExit(130) from None
    pyrmq(prog_name="pyrmq")
