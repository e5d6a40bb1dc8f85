"""Functions for servers' texts: they replace characters that cannot be encoded or would control a terminal."""

from pyrmq_core.network.log_lines import line_logger, visible_text

__all__ = ["line_logger", "visible_text"]
