"""What all tests share: thread pools that sleep instead of spinning, no model hub, and the GPU tests only where there is a GPU."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

# Two OpenMP pools that spin against one another on two cores slow each other a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["ACCEL_HEADLESS"] = "1"


# One measurement at a time holds for a machine. The processes of the tests would wait for one another, so each has a machine of its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix=f"accel-{worker}-")
    Path(tempfile.tempdir).chmod(0o755)  # some tests become another user
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# A file's tests stay in one process (--dist=loadfile), for what they share. The files that take minutes begin, so that none is left to
# run alone at the end.
LONGEST = ("notebooks", "engines", "browser", "bench", "cli", "compiled_modes", "compiled", "memory", "engine_leaks", "gpu_check")


def pytest_collection_modifyitems(config, items):
    from accel_helpers import environment

    names = {item: item.path.stem.removeprefix("test_") for item in items}
    items.sort(key=lambda item: LONGEST.index(names[item]) if names[item] in LONGEST else len(LONGEST))
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
