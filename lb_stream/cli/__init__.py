"""The commands of lbctl. Ctrl-C prints no traceback, even while they are being imported."""

import sys
from types import TracebackType


def _without_secrets(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        from lb_stream.io.messages.logs import print_trace

        print_trace(kind, error, trace)


sys.excepthook = _without_secrets
