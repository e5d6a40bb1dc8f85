"""Public functions for texts of peers: they replace characters that cannot be encoded or that steer a terminal."""

from pyrmq_core.network.log_lines import line_logger, visible_text

__all__ = ["line_logger", "visible_text"]
