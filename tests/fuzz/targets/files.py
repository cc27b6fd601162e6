"""Files that people, programs and other systems hand over: settings, keys, users, reports, logs."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from lb_stream.access.rights import Principal, RightsError, parse_rights
from lb_stream.access.signing_keys import KeyFileError, Signer, change_signers, parse_signers
from lb_stream.agent.pulsar.leader_log import read_leader_log
from lb_stream.assess.recording import read_recording
from lb_stream.cli.shared.contexts import PLACE, load_contexts
from lb_stream.cli.shared.output import CommandError
from lb_stream.console.auth.users import Users, UsersError
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.spans import parse_span
from lb_stream.contracts.verbs import VERBS, RequiredRight
from lb_stream.core.config.broker_capacities import parse_rule
from lb_stream.core.model.releases import parse_version
from lb_stream.operations.split import parse_numbers
from lb_stream.query import QueryError
from lb_stream.query.past.audit import parse_anchors
from lb_stream.query.sql_file import parse_parameters
from lb_stream.settings.files import parse_properties
from lb_stream.settings.load import load
from lb_stream.store.address import parse_address
from tests.fuzz.registry import require_message, target


@cache
def _folder() -> Path:
    """Return a folder in memory, where there is one, for the files of this process."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="lb-fuzz-", dir=place))


def written(data: bytes, name: str) -> Path:
    """Return a file with these bytes."""
    path = _folder() / name
    path.write_bytes(data)
    return path


@target(
    "access.signing_keys",
    words=("ssh-ed25519 ", 'valid-after="20260101Z"', "valid-before=", "job:", "eu-1/*", "!", "#"),
)
def signers_file(data: bytes) -> bool:
    """The file of signers: what is read is written again as it was read."""
    text = data.decode(errors="replace")
    try:
        signers = parse_signers(text)
    except KeyFileError as error:
        require_message(error)
        return False
    for signer in signers:
        signer.is_for("eu-1/broker-1:8080")
        signer.is_valid_at(1_767_225_661_000)
        assert len(signer.key_id) == 16 and signer.public_key
        (again,) = parse_signers(signer.format_line())
        assert again == signer, (again, signer)
    assert parse_signers(change_signers(text, lambda signer: signer)) == signers
    return True


@target(
    "access.rights",
    words=(
        "[[grants]]\n",
        'to = ["alice", "group:on-call", "key:3f1c22a09b7d4e10"]\n',
        'role = "operator"\n',
        'verbs = ["move"]\n',
        'clusters = ["eu-*", "!eu-9"]\n',
        'brokers = ["broker-1*"]\n',
        'namespaces = ["shop/*"]\n',
        "[roles.own]\n",
    ),
)
def rights_file(data: bytes) -> bool:
    """A file of rights: each of its grants gives what it says to whom it names, and no more."""
    try:
        rights = parse_rights(data.decode(errors="replace"))
    except RightsError as error:
        require_message(error)
        return False
    for grant in rights.grants:
        assert grant.place and grant.describe()
        for verb in VERBS:
            right = RequiredRight(verb, grant.brokers[0], grant.namespaces[0])
            assert grant.gives(right) == (verb in grant.verbs)
        assert not grant.is_to(Principal("")) or any(not name.strip("*") for name in grant.to)
    return True


@target(
    "access.signing_keys",
    words=("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----", "ENCRYPTED "),
)
def private_key(data: bytes) -> bool:
    """A private key in PEM, with and without a passphrase."""
    taken = False
    for passphrase in (None, b"secret"):
        try:
            Signer.from_pem(data, passphrase)
            taken = True
        except KeyFileError as error:
            require_message(error)
    return taken


@target(
    "settings.files",
    "settings.layers",
    "settings.spelling",
    words=(
        "loadBalancerEnabled=",
        "loadBalancerLoadSheddingStrategy=org.apache.pulsar.broker.loadbalance.impl.",
        "loadManagerClassName=",
        "loadBalancerSheddingIntervalMinutes=",
        "\\\n",
        "1e308",
    ),
)
def broker_conf(data: bytes) -> bool:
    """A broker.conf of Pulsar's, up to the settings of every cluster."""
    names = [name for name, _ in parse_properties(data.decode(errors="replace"))]
    assert all(name and not set(name) & set(" \t\n") for name in names)
    try:
        load(None, written(data, "broker.conf"), (), {})
    except SettingError as error:
        require_message(error)
        return False
    return True


@target(
    "settings.layers",
    words=(
        "[balancer]\n",
        "[cluster.eu-1]\n",
        "[cluster.eu-1.shadow.calm]\n",
        '[namespace."t/n"]\n',
        "moves_per_hour = ",
        'shedding_strategy = "AvgShedder"',
        "[kafka.options]\n",
        "[notify.targets]\n",
        "inf",
    ),
)
def settings_toml(data: bytes) -> bool:
    """A TOML file of settings, up to the settings of every cluster."""
    try:
        load(written(data, "lb.toml"), None, (), {})
    except SettingError as error:
        require_message(error)
        return False
    return True


@target("settings.layers", words=("balancer.mode=", "kafka.options.a=", "cluster.eu-1.", "[1,"))
def settings_argument(data: bytes) -> bool:
    """Arguments of `--set`, and variables of the environment: a line each."""
    lines = [line.replace("\0", "") for line in data.decode(errors="replace").splitlines()]
    variables = dict(line.split("=", 1) for line in lines if line.startswith("LB_") and "=" in line)
    try:
        load(None, None, [line for line in lines if not line.startswith("LB_")], variables)
    except SettingError as error:
        require_message(error)
        return False
    return True


@target(
    "core.config.broker_capacities",
    "core.model.releases",
    "contracts.spans",
    "operations.split",
    "query.sql_file",
    "store.address",
    words=("broker=a:1 cpu_cores=", "5.0.1-SNAPSHOT", "1h30m", "0x20000000,", "s3://b/p?x=", "1e9"),
    max_bytes=8_192,
)
def short_texts(data: bytes) -> bool:
    """Texts of arguments and settings: a capacity, a version, a duration, hashes, an address."""
    text = data.decode(errors="replace")
    parse_version(text)
    taken = False
    parsers = (parse_rule, parse_span, parse_numbers, lambda given: parse_address(given, "tables"))
    for parse in (*parsers, lambda given: parse_parameters([given])):
        try:
            parse(text)
            taken = True
        except (ValueError, QueryError) as error:
            require_message(error)
    return taken


@target(
    "console.auth.users",
    words=("[users.ann]\n", 'role = "admin"', 'clusters = { eu = "viewer" }', "password = "),
)
def users_file(data: bytes) -> bool:
    """The console's file of users."""
    try:
        Users(written(data, "users.toml")).find("ann")
    except UsersError as error:
        require_message(error)
        return False
    return True


@target("query.past.audit", words=('"cluster":"eu-1"', '"number":', '"hash":"', "0" * 64))
def audit_anchors(data: bytes) -> bool:
    """A file of anchors of the audit's chains."""
    try:
        found = parse_anchors(data.decode(errors="replace"), "anchors")
    except QueryError as error:
        require_message(error)
        return False
    return len(found) > 0


@target("cli.shared.contexts", words=('{"current":', '"contexts":{', '"config":', '"broker_conf":'))
def contexts_file(data: bytes) -> bool:
    """The file of a user's contexts."""
    before = os.environ.get(PLACE)
    os.environ[PLACE] = str(written(data, "contexts.json"))
    try:
        load_contexts()
    except CommandError as error:
        require_message(error)
        return False
    finally:
        if before is not None:
            os.environ[PLACE] = before
    return True


@target(
    "io.local.report_lines",
    "query.past.reports",
    "assess.recording",
    "assess.doubts",
    "contracts.namespaces",
    words=(
        '{"path":"/admin/v2/namespaces","data":{',
        '{"capturedAtMs":1,"broker":"a:1","report":',
        '"boundaries":[0,4294967295]',
        '"isolation":[{"name":',
        "\x1f\x8b",
    ),
    max_bytes=8_192,
)
def recording(data: bytes) -> bool:
    """A file of load reports and recorded answers, plain or gzipped."""
    try:
        found = read_recording(written(data, "reports.jsonl"), "a:1")
    except QueryError as error:
        require_message(error)
        return False
    assert found.reports and found.cluster
    return True


@target(
    "agent.pulsar.log_lines",
    "agent.pulsar.leader_log",
    words=(
        "2026-11-21T08:24:21,333+0000 [x] INFO  Shedder - ",
        '{"@timestamp":"2026-11-21T08:24:21.333Z","message":"',
        '{"instant":{"epochSecond":1,"nanoOfSecond":2},"message":"',
        '{"timestamp":1.0,"short_message":"',
        "Unloading bundle from source broker to dest broker",
        "[AvgShedder] Unloading bundle: t/n/0x00000000_0x80000000 from broker a:1 to dest broker b",
        " {sourceBroker=a:1, destBroker=b:1}",
        "brokerHitCountForHigh:{a:1=3}, brokerHitCountForLow:{}",
    ),
    max_bytes=8_192,
)
def leader_log(data: bytes) -> bool:
    """A broker's log, plain or gzipped, in any layout."""
    name = "broker.log.gz" if data.startswith(b"\x1f\x8b") else "broker.log"
    try:
        found = read_leader_log([written(data, name)])
    except ValueError as error:
        require_message(error)
        return False
    assert sum(file.timed_lines for file in found.files) > 0
    return True
