"""How `python -m tests.bench.start` adds up a start's parts. Without Spark."""

from tests.bench.start import describe_parts, medians

RUN = {
    "session": {"s": 4.0},
    "start": {
        "lbctl": 1.0,
        "driver": 3.0,
        "spark": 5.5,
        "leads": 6.5,
        "query": 7.0,
        "ready": 7.0,
        "decision": 12.0,
        "cpu": 20.0,
    },
    "restart": {
        "lbctl": 1.0,
        "driver": 3.0,
        "spark": 5.0,
        "leads": 5.5,
        "query": 6.0,
        "ready": 6.0,
        "cpu": 9.0,
    },
    "ratio": {"start": 3.0, "restart": 1.5},
}


def test_the_parts_of_a_start_add_up_to_it() -> None:
    rows = [line.strip("| ").split(" | ") for line in describe_parts(RUN).splitlines()[2:]]
    *parts, together, ratio, cpu = rows
    for column, end in ((1, 12.0), (2, 6.0)):
        cells = [row[column] for row in parts if row[column] != "–"]
        assert sum(float(cell.removesuffix(" s")) for cell in cells) == end
        assert together[column] == f"{end:.1f} s"
    assert ratio[1:] == ["3.00", "1.50"] and cpu[1:] == ["20.0 s", "9.0 s"]


def test_each_figure_is_the_median_of_all_runs() -> None:
    slow = RUN | {"session": {"s": 9.0}}
    assert medians([RUN, slow, slow])["session"]["s"] == 9.0
    assert medians([RUN, RUN, slow]) == RUN
