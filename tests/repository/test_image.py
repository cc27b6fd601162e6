"""What `make image` decides itself; the command builds the images and runs them."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lb_stream
from conf.deploy import import_all, slim
from tests.image import build, check, engine, settings

PROJECT = Path(__file__).parents[2]
CHART = PROJECT / "conf" / "deploy" / "chart" / "templates"
OCI = "org.opencontainers.image."


def inspected(**changes: Any) -> dict[str, Any]:
    """Return what an engine tells of a job's image that is right, with changes."""
    labels = {"title": "lb-stream", "version": lb_stream.__version__, "licenses": "Apache-2.0"}
    named = {OCI + name: value for name, value in labels.items()}
    return {"Size": 9e8, "Config": {"User": "10001", "Labels": named}, **changes}


def test_an_image_has_a_size_a_user_and_labels() -> None:
    assert build.find_faults(build.JOB, inspected()) == []
    (large,) = build.find_faults(build.JOB, inspected(Size=1_000_500_000))
    assert "1000 MB" in large
    faults = build.find_faults(build.JOB, inspected(Config={"User": ""}))
    assert len(faults) == 4 and all("lb-stream:" in fault for fault in faults)


def test_without_an_engine_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main([]) == 2
    assert capsys.readouterr().err.strip() == engine.ADVICE


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A docker that answers, has no image, and can pull none."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\necho "$@" >>"$0.calls"\n[ "$1" = info ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_a_base_that_cant_be_pulled_is_named_with_a_way_out(
    fake_engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--base", "debian:none"]) == 2
    assert "debian:none" in (told := capsys.readouterr().err) and "--make-base" in told
    calls = fake_engine.with_name("docker.calls").read_text().splitlines()
    assert calls == ["info", "image inspect debian:none", "pull debian:none"]


def read_variables(secrets: dict[str, Path]) -> dict[str, str]:
    """Return what a shell exports after it has read the settings."""
    shell = ["sh", "-c", f". {secrets['settings']} && {sys.executable} -c "]
    shell[-1] += "'import json, os; print(json.dumps(dict(os.environ)))'"
    run = subprocess.run(shell, env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
    return dict(json.loads(run.stdout))


def test_settings_of_this_machine_reach_a_build_as_secrets(tmp_path: Path) -> None:
    environment = {
        "PIP_INDEX_URL": "https://user:it's secret@index.example/simple",
        "SSL_CERT_FILE": "/etc/own.pem",
        "LB_IVY_SETTINGS": "/srv/ivysettings.xml",
        "JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=proxy.example",
    }
    store = tmp_path / "cacerts"
    store.touch()
    secrets = settings.build_secrets(tmp_path, environment, store, lambda _: "")
    assert secrets == {
        "certificates": Path("/etc/own.pem"),
        "truststore": store,
        "ivysettings": Path("/srv/ivysettings.xml"),
        "settings": tmp_path / "settings",
    }
    found = read_variables(secrets)
    assert found["UV_DEFAULT_INDEX"] == found["PIP_INDEX_URL"] == environment["PIP_INDEX_URL"]
    assert found["SSL_CERT_FILE"] == found["PIP_CERT"] == "/run/secrets/certificates"
    assert found["LB_IVY_SETTINGS"] == "/run/secrets/ivysettings"
    assert found["JAVA_TOOL_OPTIONS"].split() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Djavax.net.ssl.trustStore=/run/secrets/truststore",
    ]


def test_a_machine_without_settings_gives_none(tmp_path: Path) -> None:
    secrets = settings.build_secrets(tmp_path, {}, tmp_path / "none", lambda _: "")
    assert list(secrets) == ["settings"] and secrets["settings"].read_text() == ""
    assert settings.proxies({"https_proxy": "http://proxy", "PATH": "/bin", "no_proxy": ""}) == {
        "https_proxy": "http://proxy"
    }


def test_secrets_that_the_images_mount_are_those_that_a_build_gets() -> None:
    text = (PROJECT / "conf" / "deploy" / "Dockerfile").read_text()
    names = {part.partition("id=")[2] for part in text.split() if part.startswith("--mount=")}
    assert names == {"settings", "certificates", "truststore", "ivysettings"}


def test_the_pods_that_are_tried_are_those_of_the_chart() -> None:
    pods = check.manifest_pods()
    assert set(pods) == {"job", "console", "upkeep"}
    assert pods["job"][0] == "balance" and pods["console"][:2] == ["lbctl", "console"]
    templates = {name: (CHART / f"{name}.yaml").read_text() for name in ("notify", "agents")}
    for part in check.NOTIFY[:-1]:
        assert f"            - {part}\n" in templates["notify"]
    for part in ("pulsar", "--cluster={{ .cluster }}", "--admin-url={{ . }}"):
        assert f"- {part}\n" in templates["agents"]
    assert check.agent_arguments("http://a")[:3] == [
        "pulsar",
        "--cluster=eu-1",
        "--admin-url=http://a",
    ]
    assert 'bootstrap_servers = "127.0.0.1:1"' in check.manifest_settings("127.0.0.1:1")


# --- what is removed ---


def written(folder: Path, *names: str, size: int = 1000) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)


def test_what_is_not_used_goes_and_the_rest_stays(tmp_path: Path) -> None:
    unused = (
        "numpy/ma/tests/test_core.py",
        "pyarrow/libarrow_flight.so.2600",
        "pyarrow/libarrow_python.so",
        "pyspark/jars/hive-exec-2.3.10-core.jar",
        "pyspark/jars/hive-service-rpc-4.0.0.jar",
        "pygments/lexers/perl.py",
    )
    used = (
        "pyarrow/libarrow_python.so.2600",
        "pyspark/jars/hive-storage-api-2.8.1.jar",
        "pyspark/jars/spark-sql_2.13-4.2.0.jar",
        "pygments/lexers/__init__.py",
        "pygments/lexers/_mapping.py",
        "pygments/lexers/python.py",
    )
    written(tmp_path, *unused, *used)
    freed = slim.remove_unused(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == set(used)
    assert sum(freed.values()) == 1000 * len(unused)


def test_every_pattern_still_finds_something_in_this_environment() -> None:
    import pyspark

    packages = Path(pyspark.__file__).parents[1]
    patterns = [pattern for found in slim.UNUSED.values() for pattern in found]
    assert [pattern for pattern in patterns if next(packages.glob(pattern), None) is None] == []


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_a_jar_keeps_this_processors_libraries(tmp_path: Path, machine: str) -> None:
    import pyspark

    sizes = {}
    for pattern in slim.WITH_LIBRARIES:
        (whole,) = (Path(pyspark.__file__).parent / "jars").glob(pattern)
        jar = tmp_path / whole.name
        jar.write_bytes(whole.read_bytes())
        freed = slim.remove_other_libraries(jar, machine)
        with zipfile.ZipFile(jar) as small, zipfile.ZipFile(whole) as before:
            libraries = [name for name in small.namelist() if slim.LIBRARY.search(name)]
            classes = {name for name in before.namelist() if not slim.LIBRARY.search(name)}
            assert classes <= set(small.namelist()) and small.testzip() is None
        sizes[pattern] = (len(libraries), freed > 0)
    known = machine in slim.OWN_LIBRARY
    assert all(saved == known for _, saved in sizes.values())
    assert not known or all(count == 1 for count, _ in sizes.values())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written(tmp_path / "whole", "__init__.py", "__main__.py", "inner.py", size=0)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("whole", "whole.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "whole"


def test_all_modules_of_a_package_are_imported_but_programs(package: Path) -> None:
    (package / "__main__.py").write_text("raise SystemExit")
    assert import_all.import_all("whole") == []
    module: ModuleType = sys.modules["whole.inner"]
    assert module.__name__ == "whole.inner"


def test_a_module_may_lack_an_optional_package_only(package: Path) -> None:
    (package / "inner.py").write_text("raise ModuleNotFoundError('no highspy', name='highspy')")
    assert import_all.import_all("whole") == ["whole.inner"]
    (package / "inner.py").write_text("raise ModuleNotFoundError('no numpy', name='numpy')")
    with pytest.raises(ModuleNotFoundError):
        import_all.import_all("whole")


def test_this_machine_has_a_rule_for_its_libraries() -> None:
    assert platform.machine() in slim.OWN_LIBRARY or platform.system() != "Linux"
