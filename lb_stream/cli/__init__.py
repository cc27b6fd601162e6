"""The commands of lbctl. Ctrl-C while they are still being imported ends in one line, too."""

import sys
from types import TracebackType


def _without_trace(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _without_trace
