"""The two lock files, and what the stamp makes of them.

The retrieval itself is run by `lbctl jars fetch`.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pyspark
import pytest

from lb_stream.io.local.jars import (
    EXTRAS,
    JarsError,
    JarsLock,
    compiled_jar,
    jar_paths,
    spark_jars,
)
from lb_stream.kit import fetch_jars as jars
from lb_stream.kit.compile_jar import CompileError
from lb_stream.kit.fetch_jars import fetch_jars
from lb_stream.kit.jars_command import Extra
from tests.support.wordings import check_wording

PROJECT = Path(__file__).parents[3]
IVY = """<ivy-module version="2.0"><info organisation="x" module="y"/><dependencies>
<dependency org="a" name="one" rev="1.0" conf="spark->default"/><dependency org="b" name="two_2.13" rev="2.0" conf="broker->default"/>
<dependency org="c" name="three" rev="3.0" conf="s3->default"/>
</dependencies></ivy-module>"""


def small_lock(folder: Path, content: dict[str, bytes]) -> JarsLock:
    folder.mkdir()
    (folder / "ivy.xml").write_text(IVY)
    (folder / "jars.sha256").write_text(
        "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in content.items())
    )
    return JarsLock(folder)


@pytest.fixture
def deliver(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the pretended Ivy brings; it counts its runs under "runs"."""
    brings: dict[str, bytes] = {
        "spark/one-1.0.jar": b"first",
        "broker/two_2.13-2.0.jar": b"second",
        "s3/three-3.0.jar": b"third",
    }
    runs: list[int] = []

    def run_ivy(
        folder: Path, lock: JarsLock, wanted: Sequence[str], progress: jars.Progress
    ) -> None:
        runs.append(1)
        for name, data in brings.items():
            if name.partition("/")[0] not in wanted:
                continue
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)

    monkeypatch.setattr(jars, "_run_ivy", run_ivy)
    monkeypatch.setattr(jars, "runs", runs, raising=False)
    return brings


def test_every_jar_has_an_exact_revision_and_one_configuration() -> None:
    dependencies = list(ET.parse(PROJECT / "conf" / "ivy.xml").iter("dependency"))
    assert len(dependencies) > 50
    for dependency in dependencies:
        assert re.fullmatch(r"\d[\w.-]*", dependency.attrib["rev"]), dependency.attrib
        assert dependency.attrib["conf"] in ("spark->default", "broker->default", "s3->default")


def test_the_versions_that_must_agree_do() -> None:
    listed = JarsLock().modules()
    assert {"spark-sql-kafka-0-10_2.13-4.2.0.jar", "delta-spark_4.2_2.13-4.4.0.jar"} <= set(
        listed["spark"]
    )
    assert "kafka_2.13-4.2.0.jar" in listed["broker"]
    shipped = Path(pyspark.__file__).parent / "jars"
    assert [
        path.name.removeprefix("hadoop-client-api-")
        for path in shipped.glob("hadoop-client-api-*.jar")
    ] == [jar.removeprefix("hadoop-aws-") for jar in listed["s3"] if jar.startswith("hadoop-aws-")]
    locked = (PROJECT / "requirements.lock").read_text()
    assert "\npyspark==4.2.0 " in locked and "\ndelta-spark==4.4.0 " in locked


def test_what_ships_with_spark_is_not_fetched_again() -> None:
    assert not [
        jar
        for jar in JarsLock().modules()["spark"]
        if jar.startswith(("hadoop-", "scala-library", "log4j", "slf4j", "parquet"))
    ]


def test_every_jar_listed_has_a_hash() -> None:
    lock = JarsLock()
    assert set(lock.expected()) == {
        f"{configuration}/{jar}"
        for configuration, listed in lock.modules().items()
        for jar in listed
    }


def test_retrieving_twice_asks_ivy_once(tmp_path: Path, deliver: dict[str, bytes]) -> None:
    lock = small_lock(tmp_path / "conf", deliver)
    assert fetch_jars(tmp_path / "jars", lock) is True
    assert fetch_jars(tmp_path / "jars", lock) is False
    assert len(jars.runs) == 1


def test_a_lost_jar_or_a_changed_lock_asks_ivy_again(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock = small_lock(tmp_path / "conf", deliver)
    fetch_jars(tmp_path / "jars", lock)
    (tmp_path / "jars/spark/one-1.0.jar").unlink()
    assert fetch_jars(tmp_path / "jars", lock) is True
    lock.ivy.write_text(IVY + "<!-- changed -->")
    assert fetch_jars(tmp_path / "jars", lock) is True


def test_a_jar_of_an_earlier_lock_is_removed_from_the_class_path(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock = small_lock(tmp_path / "conf", deliver)
    old = tmp_path / "jars/broker/two_2.13-1.9.jar"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    fetch_jars(tmp_path / "jars", lock)
    assert not old.exists()


def test_a_jar_with_another_hash_is_refused_and_removed(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock = small_lock(tmp_path / "conf", deliver)
    deliver["spark/one-1.0.jar"] = b"something else"
    with pytest.raises(JarsError) as error:
        fetch_jars(tmp_path / "jars", lock)
    check_wording(error.value)
    assert not (tmp_path / "jars/spark/one-1.0.jar").exists()
    assert not (tmp_path / "jars/.stamp").exists()


def test_a_hash_file_that_lags_behind_ivy_says_so(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock = small_lock(tmp_path / "conf", {"spark/one-1.0.jar": b"first"})
    with pytest.raises(JarsError, match="run `make lock`"):
        fetch_jars(tmp_path / "jars", lock)


def test_an_extra_is_fetched_where_it_is_asked_for_and_kept_from_then_on(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock = small_lock(tmp_path / "conf", deliver)
    fetch_jars(tmp_path / "jars", lock)
    assert not (tmp_path / "jars/s3").exists()
    assert fetch_jars(tmp_path / "jars", lock, extras=["s3"]) is True
    extra = tmp_path / "jars/s3/three-3.0.jar"
    assert extra.read_bytes() == b"third"
    extra.unlink()
    assert fetch_jars(tmp_path / "jars", lock) is True
    assert extra.exists() and fetch_jars(tmp_path / "jars", lock, extras=["s3"]) is False


def test_a_jar_and_its_copy_in_ivys_cache_are_one_file_however_often_it_is_fetched(
    tmp_path: Path, deliver: dict[str, bytes]
) -> None:
    lock, folder = small_lock(tmp_path / "conf", deliver), tmp_path / "jars"
    cached = folder / "cache/a/one/jars/one-1.0.jar"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"first")
    for extras in ([], ["s3"]):
        assert fetch_jars(folder, lock, extras=extras) is True
        assert [path.name for path in (folder / "spark").iterdir()] == ["one-1.0.jar"]
        assert (folder / "spark/one-1.0.jar").samefile(cached)


def test_a_session_gets_an_extra_that_is_there(tmp_path: Path) -> None:
    for configuration in ("spark", "s3"):
        (tmp_path / configuration).mkdir()
        for name in JarsLock().modules()[configuration]:
            (tmp_path / configuration / name).touch()
        compiled_jar(tmp_path / configuration, JarsLock().source).touch()
        assert {path.parent.name for path in spark_jars(tmp_path)} == (
            {"spark"} if configuration == "spark" else {"spark", "s3"}
        )
    assert [path for path in spark_jars(tmp_path) if path.name.startswith("lb-")] == [
        compiled_jar(tmp_path / "s3", JarsLock().source)
    ]
    for lost in (
        compiled_jar(tmp_path / "s3", JarsLock().source),
        tmp_path / "s3" / JarsLock().modules()["s3"][0],
    ):
        lost.unlink()
        with pytest.raises(JarsError) as error:
            spark_jars(tmp_path)
        check_wording(error.value)
        lost.touch()


def test_what_of_ours_spark_needs_in_a_bucket_is_compiled_once_and_again_when_it_has_changed(
    tmp_path: Path, deliver: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(folder: Path, source: Path) -> None:
        if "broken" in source.read_text():
            raise CompileError("no class")
        compiled_jar(folder, source).write_bytes(source.read_bytes())

    monkeypatch.setattr(jars, "compile_jar", compiled)
    lock = small_lock(tmp_path / "conf", deliver)
    lock.source.write_text("class A")
    fetch_jars(tmp_path / "jars", lock)
    assert not (tmp_path / "jars/s3").exists(), "nobody has asked for it"
    assert fetch_jars(tmp_path / "jars", lock, extras=["s3"]) is True
    assert fetch_jars(tmp_path / "jars", lock) is False
    first = compiled_jar(tmp_path / "jars/s3", lock.source)
    lock.source.write_text("class B")
    assert fetch_jars(tmp_path / "jars", lock) is True
    assert (
        not first.exists()
        and compiled_jar(tmp_path / "jars/s3", lock.source).read_bytes() == b"class B"
    )
    lock.source.write_text("broken")
    with pytest.raises(JarsError, match="no class"):
        fetch_jars(tmp_path / "jars", lock)


def test_lbctl_offers_every_extra() -> None:
    assert tuple(Extra) == EXTRAS


def test_missing_jars_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(JarsError) as error:
        jar_paths("spark", tmp_path)
    check_wording(error.value)


def test_an_unknown_configuration_is_named() -> None:
    with pytest.raises(ValueError) as error:
        jar_paths("sparc")
    check_wording(error.value)


def test_ivys_report_becomes_one_paragraph() -> None:
    tail = [
        "",
        "\t:: a#b;1: not found".strip(),
        "[FAILED     ] c#d;2!d.jar: Downloaded file size doesn't match",
        "noise",
    ]
    message = jars._explain(tail)
    assert (
        "a#b;1: not found" in message
        and "c#d;2" in message
        and "noise" not in message
        and "run it again" in message
    )
