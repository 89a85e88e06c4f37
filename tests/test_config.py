"""RunConfig refuses what it does not know, with the nearest name, wherever it comes from."""

import pytest

from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError, UnknownNameError


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'precision'"):
        RunConfig(precison="bf16")


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"batch": "8"}, "batch"),
        ({"batch": 0}, "batch"),
        ({"batch": True}, "batch"),
        ({"precision": "int3"}, "precision"),
        ({"seconds": -1}, "seconds"),
    ],
)
def test_ill_typed_or_out_of_range_is_refused(values, name):
    with pytest.raises(ParameterError, match=f"Parameter {name}=") as caught:
        RunConfig(**values)
    assert caught.value.next_step.startswith("It is: ")


def test_sweep_is_the_product_in_order():
    configs = RunConfig.sweep(["precision=fp32,bf16", "batch=1,8"])
    assert [(c.precision, c.batch) for c in configs] == [("fp32", 1), ("fp32", 8), ("bf16", 1), ("bf16", 8)]


def test_settings_are_parsed_by_type():
    config = RunConfig.parse(["batch=4", "seconds=0.5", "model=tiny-cnn"])
    assert (config.batch, config.seconds, config.model) == (4, 0.5, "tiny-cnn")


@pytest.mark.parametrize("setting", ["batch", "batch=", "batch=two", "batc=2", "batch=1,2"])
def test_bad_settings_are_refused(setting):
    with pytest.raises(ParameterError):
        RunConfig.parse([setting])


def test_yaml(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: tiny-cnn\nbatch: 2\n")
    assert RunConfig.from_yaml(path).batch == 2
    path.write_text("batch: [1, 2]\n")
    with pytest.raises(ParameterError, match="batch"):
        RunConfig.from_yaml(path)
    path.write_text("- batch\n")
    with pytest.raises(ParameterError, match="not a mapping"):
        RunConfig.from_yaml(path)
    path.write_text("batch: [")
    with pytest.raises(ParameterError, match="not YAML"):
        RunConfig.from_yaml(path)
    with pytest.raises(ParameterError, match="cannot be read"):
        RunConfig.from_yaml(tmp_path / "missing.yaml")


def test_namespace_of_a_notebook():
    namespace = {"batch": 2, "_private": 3, "Out": {}, "RunConfig": RunConfig}
    assert RunConfig.from_namespace(namespace).batch == 2
    with pytest.raises(UnknownNameError, match="batch_size"):
        RunConfig.from_namespace({**namespace, "batch_size": 8})


def test_a_config_survives_replace_and_stays_frozen():
    config = RunConfig(batch=2)
    assert config.replace(batch=4).batch == 4
    with pytest.raises(Exception, match="frozen"):
        config.batch = 3


def test_layers_to_keep_are_no_sweep():
    (one,) = RunConfig.sweep(["keep=layers.0.out+layers.1.out"])
    assert one.kept == ("layers.0.out", "layers.1.out")
    assert RunConfig.parse(["keep="]).kept == ()


def test_switches_are_read_from_words():
    assert [one.per_channel for one in RunConfig.sweep(["per_channel=true,False"])] == [True, False]
    with pytest.raises(ParameterError, match="per_channel='maybe' is refused"):
        RunConfig.parse(["per_channel=maybe"])


def test_profiles_are_read_and_a_wrong_one_is_refused():
    assert RunConfig(profiles="1x16/8x128/32x256+1/1/64").sizes == (((1, 16), (8, 128), (32, 256)), ((1, None), (1, None), (64, None)))
    for wrong in ("1/2", "8/4/32", "0/1/2", "1x16/8/32x256", "a/b/c", "1x16/8x8/32x256"):
        with pytest.raises(ParameterError, match="profiles"):
            RunConfig(profiles=wrong)
