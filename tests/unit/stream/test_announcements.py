"""A job announces what it reads: every minute, and at once of a new cluster or a missing roster."""

from lb_stream.contracts.reads import READS_INTERVAL_S
from lb_stream.stream.announcements import AWAIT_S, AwaitedRosters, ReadsAnnouncer


def test_it_is_announced_every_minute_and_at_once_of_new_clusters_and_missing_rosters() -> None:
    now_s = [50.0]
    announcer = ReadsAnnouncer(lambda: now_s[0])

    def announced(**clusters: str) -> dict[str, list[str]]:
        known = {cluster: brokers.split() for cluster, brokers in clusters.items()}
        return {reads.cluster: reads.rosters for reads in announcer.list_due(known, "c")}

    assert announced(us="", eu="") == {"eu": [], "us": []}
    now_s[0] += READS_INTERVAL_S - 1
    assert announced(us="", eu="") == {}
    assert announced(us="", eu="b1 b2") == {"eu": ["b1", "b2"]}
    assert announced(us="", eu="") == {}
    assert announced(us="", eu="", new="") == {"new": []}
    now_s[0] += 1
    assert announced(us="", eu="", new="") == {"eu": [], "new": [], "us": []}
    assert announced(us="") == {}
    assert announced(us="", eu="") == {"eu": []}


def test_a_cluster_waits_once_for_all_rosters_that_it_lacks() -> None:
    now_s = [50.0]
    awaited = AwaitedRosters(lambda: now_s[0])
    awaited.note_missing({"eu": ("b2",), "us": ()})
    assert awaited.of_next_batch() == {"eu": ("b2",)}
    now_s[0] += AWAIT_S - 1
    awaited.note_missing({"eu": ("b1", "b2"), "us": ("b9",)})
    assert awaited.of_next_batch() == {"eu": ("b1", "b2"), "us": ("b9",)}
    now_s[0] += 1
    awaited.note_missing({"eu": ("b3",)})
    assert awaited.of_next_batch() == {"eu": None, "us": ("b9",)}
