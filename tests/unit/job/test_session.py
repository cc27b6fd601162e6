"""What executors on other machines need is asked for in one line, before they fail without it."""

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.messages.errors import describe_error
from lb_stream.job.session import require_reachable

SHARED = Settings(stream=StreamSettings(tables="/mnt/lb/tables", checkpoint="s3a://lb/checkpoint"))


@pytest.mark.parametrize("name", ["tables", "checkpoint"])
def test_a_relative_folder_on_a_cluster_is_a_wrong_setting(name: str) -> None:
    relative = SHARED.model_copy(
        update={"stream": SHARED.stream.model_copy(update={name: ".lb/here"})}
    )
    require_reachable(relative, "local[2,4]", "127.0.0.1")
    with pytest.raises(
        SettingError, match=rf"stream\.{name} = .*\.lb/here.*absolute path"
    ) as raised:
        require_reachable(relative, "spark://master:7077", "10.0.0.1")
    line, code = describe_error(raised.value) or ("", 0)
    assert code == 2 and "\n" not in line


@pytest.mark.parametrize(
    "master",
    [
        "spark://master:7077",
        "spark://10.0.0.2:7077,10.0.0.3:7077",
        "yarn",
        "k8s://https://kubernetes:443",
    ],
)
def test_a_driver_at_a_loopback_address_is_found_by_no_executor_elsewhere(master: str) -> None:
    require_reachable(SHARED, master, "10.0.0.1")
    for driver in ("127.0.0.1", "127.0.1.1", "localhost", "::1"):
        with pytest.raises(SettingError, match=r"spark\.driver\.host.*hostname -I"):
            require_reachable(SHARED, master, driver)


@pytest.mark.parametrize(
    "master",
    ["local[2,4]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "spark://localhost:7077"],
)
def test_on_one_machine_the_loopback_address_is_right(master: str) -> None:
    require_reachable(SHARED, master, "127.0.0.1")
