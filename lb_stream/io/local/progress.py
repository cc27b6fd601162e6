"""Shows the progress of long work: a bar on a terminal, a line now and then in other outputs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, every: int = 20) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows progress on stderr: (subject, steps done, steps in all).

    `every`: steps between two lines where there is no terminal.
    """
    from rich import progress as bars  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _report_lines(label, every)
        return
    columns = (
        bars.TextColumn(label),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[subject]}"),
    )
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None, subject="", visible=False)

        def report(subject: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)
            if subject:
                bar.update(task, subject=subject)

        yield report


def _report_lines(label: str, every: int) -> Callable[[str, int, int], None]:
    last = -every

    def report(_subject: str, done: int, total: int) -> None:
        nonlocal last
        if done - last >= every or done == total:
            if done != last:
                print(f"{label}: {done} of {total} steps", file=sys.stderr, flush=True)
            last = done

    return report
