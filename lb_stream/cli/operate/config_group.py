"""`lbctl config` with the commands that change settings of a running cluster."""

from lb_stream.cli.inspect.config import app
from lb_stream.cli.operate.dynamic_config import register_config

__all__ = ["app"]

register_config(app)
