"""requirements.lock installs anywhere: hashes for everything, no index, no path."""

import re
import tomllib

from lb_stream.io.jars import PROJECT

LOCK = (PROJECT / "requirements.lock").read_text()


def test_no_line_names_an_index_or_a_path() -> None:
    for line in LOCK.splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w .<>='!]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


def test_every_direct_dependency_is_locked_at_its_pinned_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    direct = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert len(direct) > 15
    for requirement in direct:
        assert f"\n{requirement} " in f"\n{LOCK}", requirement


def test_pandas_stays_out() -> None:
    # pandas 3 breaks PySpark 4.2; the Arrow and Row interfaces need no pandas at all.
    assert "\npandas==" not in LOCK
