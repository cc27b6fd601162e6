"""The commands of lbctl. Ctrl-C prints no traceback, even while they are being imported."""

import sys
from types import TracebackType


def _without_trace(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _without_trace
