"""The commands that serve until Ctrl-C: `pyrmq dev` and `pyrmq web`."""
