"""What all tests share: thread pools that sleep instead of spinning, no model hub, and the GPU tests only where there is a GPU."""

import os

import pytest

# Two OpenMP pools that spin against one another on two cores slow each other a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["ACCEL_HEADLESS"] = "1"


# One measurement at a time on a machine: files whose tests take that slot run one after another, beside the rest.
MEASURING = ("browser", "notebooks", "bench", "cli", "panel", "profiling", "explain", "environment_ceilings", "instructions", "device")
MEASURING += ("no_overhead", "launch", "gpu_check", "memory")


def pytest_collection_modifyitems(config, items):
    from accel_helpers import environment

    for item in items:
        name = item.path.stem.removeprefix("test_")
        item.add_marker(pytest.mark.xdist_group("measuring" if name in MEASURING else name))
    items.sort(key=lambda item: "measuring" not in item.get_closest_marker("xdist_group").args)  # the longest group first
    if environment.describe().gpus:
        return
    deselected = [item for item in items if item.get_closest_marker("gpu")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


def pytest_report_header():
    from accel_helpers import environment

    return "gpu tests: run" if environment.describe().gpus else "gpu tests: deselected, no NVIDIA GPU answers here"


@pytest.fixture
def out(tmp_path):
    """An empty folder to build an artifact into."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"
