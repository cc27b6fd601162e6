"""The sample settings in conf/ are what they say: known keys with the defaults."""

from pathlib import Path

import pytest

from lb_stream.settings.load import load_settings
from lb_stream.settings.names import list_known_names
from lb_stream.settings.resolve import cluster_config

CONF = Path(__file__).parents[2] / "conf"


def test_every_key_of_the_sample_broker_conf_is_read() -> None:
    lines = (CONF / "broker.conf").read_text().splitlines()
    keys = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    assert keys and keys <= set(list_known_names())


@pytest.mark.parametrize(
    "given", [{"broker_conf": CONF / "broker.conf"}, {"toml": CONF / "default.toml"}]
)
def test_a_sample_leads_to_the_defaults(given: dict[str, Path]) -> None:
    loaded = load_settings(**given, environment={})
    settings = getattr(loaded, "settings", loaded)
    sample, default = cluster_config(settings.of_cluster("any")), cluster_config({})
    assert (sample.shedder.name, sample.placement.name) == (
        default.shedder.name,
        default.placement.name,
    )
    assert sample.shedder_config == default.shedder_config
    assert sample.placement_config == default.placement_config
    assert sample.splitting == default.splitting
    assert sample.balancer.weights == default.balancer.weights
