"""Progress of what takes long: a bar on a terminal, a line now and then elsewhere (a CI log)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, every: int = 20) -> Iterator[Callable[[str, int, int], None]]:
    """Gives a function (what, steps done, steps in all) to report progress with.

    Writes to stderr; shows nothing if never called.

    `every`: where there is no terminal, a line after so many steps.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain(label, every)
        return
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None, what="", visible=False)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)
            if what:
                bar.update(task, what=what)

        yield report


def _plain(label: str, every: int) -> Callable[[str, int, int], None]:
    last = -every

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if done - last >= every or done == total:
            if done != last:
                print(f"{label}: {done} of {total} steps", file=sys.stderr, flush=True)
            last = done

    return report
