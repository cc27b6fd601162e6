"""Scalable topics of Pulsar 5.0: their segments, with bundles, brokers and load; split and merge.

A segment is split in the middle of its hashes, and two neighbours are merged into one. Both make
segments with new ids, whose names hash into other bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminError
from lb_stream.agent.pulsar.namespaces import bundle_boundaries
from lb_stream.agent.pulsar.stats import BundleTraffic, read_bundles
from lb_stream.core.model.topics import (
    LAST_KEY_HASH,
    SCALABLE,
    Ring,
    SegmentName,
    full_topic_name,
    is_scalable,
    namespace_of_topic,
)

ROUTE = "/admin/v2/scalable"
BROKERS = "/admin/v2/brokers"
_MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError)
"""What taking the fields of an answer of another form raises; int(1e400) is an OverflowError."""


class UnknownTopic(BrokerError):
    """There is no such scalable topic, or the cluster has none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment is: its bundle, and the broker that serves it; None: no broker does."""

    bundle: str
    broker: str | None


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """A segment's load, in and out together, and its shares of its bundle's, 0..1.

    A share is 0 where the bundle has no such load.
    """

    msgs_per_s: float
    bytes_per_s: float
    msgs_share_ratio: float
    bytes_share_ratio: float

    @staticmethod
    def of_bundle(rates: tuple[float, float], bundle: BundleTraffic) -> SegmentLoad:
        """Return the load of a segment with these messages/s and bytes/s."""
        stats = bundle.stats
        msgs = stats.msg_rate_in + stats.msg_rate_out
        flow = stats.msg_throughput_in + stats.msg_throughput_out
        return SegmentLoad(
            *rates, rates[0] / msgs if msgs else 0.0, rates[1] / flow if flow else 0.0
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a scalable topic.

    `topic`: the full name of the topic that holds its messages; that of an ordinary topic where
    this was made scalable. `load` None: its broker gives no statistics of it.
    """

    name: SegmentName
    topic: str
    is_active: bool
    parents: tuple[int, ...]
    children: tuple[int, ...]
    place: Place | None = None
    load: SegmentLoad | None = None

    @property
    def id(self) -> int:
        """The segment's number, which no other segment of the topic ever has."""
        return self.name.id


@dataclass(frozen=True, slots=True)
class ScalableTopic:
    """A scalable topic and all segments that still exist, by their hashes, then ids.

    `epoch` counts its splits and merges; `next_id` is the next new segment's.
    """

    topic: str
    epoch: int
    next_id: int
    segments: tuple[Segment, ...]

    @property
    def active(self) -> tuple[Segment, ...]:
        """The segments to which producers send; together they have every hash once."""
        return tuple(segment for segment in self.segments if segment.is_active)

    def require(self, segment_id: int) -> Segment:
        """Return an active segment. Raises Refused for a sealed one, and for an unknown id."""
        found = next((segment for segment in self.segments if segment.id == segment_id), None)
        if found is not None and found.is_active:
            return found
        active = ", ".join(map(str, sorted(segment.id for segment in self.active)))
        if found is None:
            raise Refused(f"{self.topic} has no segment {segment_id}: expected one of {active}")
        became = ", ".join(map(str, found.children)) or "none"
        raise Refused(
            f"segment {segment_id} of {self.topic} is sealed, its children: {became}; expected an "
            f"active segment, one of {active}"
        )


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """A split or merge of segments, as it would be made now: what goes, and what comes.

    The children have no load yet. If Pulsar changes the topic meanwhile, they get other ids, and
    with them other bundles.
    """

    topic: ScalableTopic
    parents: tuple[Segment, ...]
    children: tuple[Segment, ...]

    @property
    def kind(self) -> Literal["split", "merge"]:
        """Whether a segment is split, or two are merged."""
        return "split" if len(self.parents) == 1 else "merge"


def require_scalable(topic: str) -> str:
    """Return the full name of a scalable topic. `a/b/c` is `topic://a/b/c`. Raises ValueError."""
    full = full_topic_name(topic if "://" in topic else f"{SCALABLE}{topic}")
    if not is_scalable(full):
        raise ValueError(
            f"topic = {topic}: expected a scalable topic, topic://TENANT/NAMESPACE/NAME"
        )
    return full


def list_scalable(admin: AdminClient, namespace: str) -> list[str]:
    """Return the full names of a namespace's scalable topics, sorted. Raises BrokerError."""
    path = f"{ROUTE}/{quote(namespace)}"
    answer = admin.get(path)
    if answer.status == 404:
        raise UnknownTopic(
            f"{admin.settings.url} knows no scalable topics ({answer.reason}): Pulsar has them "
            "since 5.0, with scalableTopicsEnabled"
        )
    found = admin.parse(path, answer)
    if not isinstance(found, list):
        raise BrokerError(f"GET {admin.settings.url}{path}: expected a list of topics")
    return sorted(map(str, found))


def read_segments(admin: AdminClient, topic: str) -> ScalableTopic:
    """Return a scalable topic without its segments' places. Raises BrokerError, UnknownTopic."""
    path = _path(topic)
    answer = admin.get(path)
    if answer.status == 404:
        raise UnknownTopic(
            f"{admin.settings.url} has no scalable topic {topic}; lbctl scalable list "
            f"{namespace_of_topic(topic)} --admin-url {admin.settings.url} shows those that it has"
        )
    found = admin.parse(path, answer)
    try:
        assert isinstance(found, dict)
        next_id = int(found["nextSegmentId"])
        segments = [_segment(topic, fields) for fields in found["segments"].values()]
        segments.sort(key=lambda segment: (segment.name.first, segment.name.last, segment.id))
        for child in (next_id, next_id + 1):
            full_topic_name(SegmentName(topic, 0, LAST_KEY_HASH, child).full)
        return ScalableTopic(topic, int(found["epoch"]), next_id, tuple(segments))
    except (AssertionError, AttributeError, *_MALFORMED) as error:
        raise BrokerError(
            f"GET {admin.settings.url}{path}: expected a scalable topic with its segments: "
            f"{type(error).__name__} {error}"
        ) from None


def _segment(topic: str, fields: Mapping[str, Any]) -> Segment:
    hashes = fields["hashRange"]
    name = SegmentName(topic, int(hashes["start"]), int(hashes["end"]), int(fields["segmentId"]))
    if not 0 <= name.first <= name.last <= LAST_KEY_HASH:
        raise ValueError(f"hashes {name.first} to {name.last}: expected 0 to {LAST_KEY_HASH}")
    return Segment(
        name,
        full_topic_name(str(fields.get("legacyTopicName") or name.full)),
        fields["state"] == "ACTIVE",
        tuple(map(int, fields.get("parentIds") or ())),
        tuple(map(int, fields.get("childIds") or ())),
    )


@dataclass(frozen=True, slots=True)
class AutoScaling:
    """When Pulsar itself splits and merges a topic's segments.

    It splits one above `split_msgs_per_s` (in), and merges two that stay below `merge_msgs_per_s`
    (in) for `merge_after_s`; further limits apply.
    """

    enabled: bool
    split_msgs_per_s: float
    merge_msgs_per_s: float
    merge_after_s: float


def read_auto_scaling(admin: AdminClient, topic: str) -> AutoScaling | None:
    """Return when Pulsar itself changes a topic's segments; None: it doesn't say."""
    path = f"{_path(topic)}/stats"
    try:
        policy = admin.get_json(path)["autoScale"]["policy"]
        return AutoScaling(
            bool(policy["enabled"]),
            float(policy["splitMsgRateInThreshold"]),
            float(policy["mergeMsgRateInThreshold"]),
            float(policy["mergeWindowSeconds"]),
        )
    except (BrokerError, *_MALFORMED):
        return None


class ClusterSurvey:
    """Finds the bundles, brokers and loads of segments, by the admin API of any broker.

    Asks every active broker once for what it serves, and those with a segment for statistics.
    `connect` makes a client for a broker's address.
    """

    def __init__(
        self, admin: AdminClient, connect: Callable[[str], AdminClient] | None = None
    ) -> None:
        self.admin = admin
        self._connect = connect or self._connect_at
        self._owners: dict[str, str] | None = None
        self._traffic: dict[str, dict[str, BundleTraffic]] = {}
        self._rings: dict[str, Ring] = {}

    def read(self, topic: str) -> ScalableTopic:
        """Return a scalable topic with its segments' places and loads.

        Raises BrokerError, UnknownTopic.
        """
        found = read_segments(self.admin, topic)
        return replace(found, segments=tuple(self._locate(segment) for segment in found.segments))

    def plan_split(self, topic: ScalableTopic, segment_id: int) -> SegmentChange:
        """Return the split of a segment in two halves. Raises BrokerError, Refused."""
        parent = topic.require(segment_id)
        try:
            halves = parent.name.halves(topic.next_id)
        except ValueError as error:
            raise Refused(str(error)) from None
        return SegmentChange(topic, (parent,), tuple(self._child(half) for half in halves))

    def plan_merge(self, topic: ScalableTopic, ids: Sequence[int]) -> SegmentChange:
        """Return the merge of two neighbours. Raises BrokerError, Refused."""
        first, second = (topic.require(segment_id) for segment_id in ids)
        try:
            merged = first.name.merged(second.name, topic.next_id)
        except ValueError as error:
            raise Refused(str(error)) from None
        return SegmentChange(topic, (first, second), (self._child(merged),))

    def _child(self, name: SegmentName) -> Segment:
        return Segment(name, name.full, True, (), (), self._place(name.full))

    def _locate(self, segment: Segment) -> Segment:
        place = self._place(segment.topic)
        load = None
        if place.broker is not None:
            bundle = self._statistics(place.broker).get(place.bundle)
            rates = None if bundle is None else bundle.rates.get(segment.topic)
            if bundle is not None and rates is not None:
                load = SegmentLoad.of_bundle(rates, bundle)
        return replace(segment, place=place, load=load)

    def _place(self, topic: str) -> Place:
        namespace = namespace_of_topic(topic)
        if namespace not in self._rings:
            bounds = bundle_boundaries(self.admin, namespace)
            try:
                self._rings[namespace] = Ring.from_boundaries(namespace, bounds)
            except ValueError as error:
                raise BrokerError(str(error)) from None
        bundle = self._rings[namespace].bundle_of(topic)
        return Place(bundle, self._read_owners().get(bundle))

    def _read_owners(self) -> Mapping[str, str]:
        """Return bundle → the broker that serves it; a broker that doesn't answer has none."""
        if self._owners is None:
            runtime = _read_object(self.admin, f"{BROKERS}/configuration/runtime")
            cluster = quote(str(runtime.get("clusterName") or ""))
            self._owners = {}
            active = self.admin.get_json(f"{BROKERS}/{cluster}")
            if not isinstance(active, list):
                url = self.admin.settings.url
                raise AdminError(f"GET {url}{BROKERS}/{cluster}: expected a list of brokers")
            for broker in map(str, active):
                path = f"{BROKERS}/{cluster}/{quote(broker, safe=':')}/ownedNamespaces"
                try:
                    self._owners |= dict.fromkeys(_read_object(self.admin, path), broker)
                except AdminError as error:
                    if error.status in (401, 403):
                        raise
        return self._owners

    def _statistics(self, broker: str) -> Mapping[str, BundleTraffic]:
        """Return a broker's statistics; empty if it can't be asked."""
        if broker not in self._traffic:
            try:
                self._traffic[broker] = read_bundles(self._connect(broker))
            except (BrokerError, ValueError):
                self._traffic[broker] = {}
        return self._traffic[broker]

    def _connect_at(self, broker: str) -> AdminClient:
        """Return a client for the address in a broker's id."""
        scheme = urlsplit(self.admin.settings.url).scheme
        return AdminClient(replace(self.admin.settings, url=f"{scheme}://{broker}"))


def _read_object(admin: AdminClient, path: str) -> dict[str, object]:
    """Return a JSON object. Raises AdminError."""
    value = admin.get_json(path)
    if not isinstance(value, dict):
        raise AdminError(f"GET {admin.settings.url}{path}: expected a JSON object")
    return value


def make_change(survey: ClusterSurvey, change: SegmentChange) -> tuple[Segment, ...]:
    """Have Pulsar make a split or merge; return the new segments with their places.

    An answer that is lost is made good by reading the topic again. Raises BrokerError; Refused if
    the segments have changed meanwhile.
    """
    topic, ids = change.topic.topic, [segment.id for segment in change.parents]
    path = f"{_path(topic)}/{change.kind}/{'/'.join(map(str, ids))}"
    lost: AdminError | None = None
    try:
        answer = survey.admin.post(path)
    except AdminError as error:
        if error.status:
            raise
        lost = error
    else:
        if answer.status not in (200, 204):
            # Pulsar answers 500, with a stack trace, also where segments have changed meanwhile.
            now = read_segments(survey.admin, topic)
            for segment_id in ids:
                now.require(segment_id)
            raise survey.admin.refusal("POST", path, answer)
    children = find_children(ClusterSurvey(survey.admin).read(topic), change)
    if not children:
        raise lost or BrokerError(
            f"POST {survey.admin.settings.url}{path} answers {answer.status}, and segment "
            f"{' and '.join(map(str, ids))} of {topic} has no child: has Pulsar changed it again? "
            "`lbctl scalable show` shows its segments"
        )
    return children


def find_children(now: ScalableTopic, change: SegmentChange) -> tuple[Segment, ...]:
    """Return the segments that the parents of a change have become; none: it wasn't made."""
    by_id = {segment.id: segment for segment in now.segments}
    became = [
        set(by_id[parent.id].children) if parent.id in by_id else set[int]()
        for parent in change.parents
    ]
    return tuple(segment for segment in now.segments if segment.id in set.intersection(*became))


def _path(topic: str) -> str:
    """Return the path of a scalable topic. Raises UnknownTopic for a name that leads elsewhere."""
    namespace = namespace_of_topic(topic)
    own = topic.removeprefix(f"{SCALABLE}{namespace}/")
    if not {".", ".."}.isdisjoint((*namespace.split("/"), own)):
        raise UnknownTopic(f"topic = {topic}: expected names other than . and ..")
    return f"{ROUTE}/{quote(namespace)}/{quote(own, safe='')}"
