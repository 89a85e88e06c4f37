"""The machine as a measurement sees it, on cgroup trees, GPUs and neighbours made for the test."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import pynvml
import pytest

from accel_helpers import device
from accel_helpers.device import Conditions, measuring, quiet
from accel_helpers.errors import BusyError


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A function that lays out a cgroup tree: what /proc/self/cgroup says, and the files by their path."""

    def lay(own, files=()):
        (tmp_path / "own").write_text(own)
        for name, text in dict(files).items():
            path = tmp_path / "fs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(device, "_CGROUP", tmp_path / "fs")
        monkeypatch.setattr(device, "_OWN_CGROUP", tmp_path / "own")

    return lay


V2 = "0::/system.slice/job\n"
V1 = "12:memory:/docker/c1\n4:cpu,cpuacct:/docker/c1\n1:name=systemd:/docker/c1\n"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        (V2, {"system.slice/job/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"system.slice/job/cpu.max": "max 100000\n", "system.slice/cpu.max": "50000 100000\n"}, 0.5),  # a parent's limit holds too
        (V2, {"system.slice/job/cpu.max": "300000 100000\n", "cpu.max": "800000 100000\n"}, 3.0),  # the tightest
        (V2, {"system.slice/job/cpu.max": "max 100000\n"}, None),
        ("0::/../../elsewhere\n", {"cpu.max": "200000 100000\n"}, 2.0),  # a cgroup namespace shows a path that is not there
        (V1, {"cpu,cpuacct/docker/c1/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/docker/c1/cpu.cfs_period_us": "100000\n"}, 2.5),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 1.0),  # mounted at the root
        (V1, {"cpu,cpuacct/docker/c1/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/docker/c1/cpu.cfs_period_us": "100000\n"}, None),
        ("nonsense\n", {"cpu.max": "100000 100000\n"}, None),
        (V2, {"system.slice/job/cpu.max": "many few\n"}, None),
        (V2, {"system.slice/job/cpu.max": "100000 0\n"}, None),
    ],
)
def test_cpu_quota(cgroups, own, files, quota):
    cgroups(own, files)
    assert device.cpu_quota() == quota


@pytest.mark.parametrize(("quota", "usable"), [(None, 8), ("50000 100000", 1), ("350000 100000", 3), ("1600000 100000", 8)])
def test_usable_cpus_is_affinity_cut_by_the_quota(cgroups, monkeypatch, quota, usable):
    cgroups(V2, {"cpu.max": quota} if quota else {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert device.usable_cpus() == usable


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        (V2, {"system.slice/job/memory.max": "1000000\n", "system.slice/memory.max": "max\n"}, 1_000_000),
        (V1, {"memory/docker/c1/memory.limit_in_bytes": "2000000\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2_000_000),
        (V2, {"memory.max": "max\n"}, None),
        ("", {}, None),
    ],
)
def test_usable_memory(cgroups, own, files, limit):
    cgroups(own, files)
    assert device.usable_memory() == (limit or device.psutil.virtual_memory().total)


def test_no_cgroup_files_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "_OWN_CGROUP", tmp_path / "none")
    assert device.cpu_quota() is None
    assert device.usable_cpus() >= 1


def test_store_root(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path))
    assert device.store_root() == tmp_path
    monkeypatch.delenv("ACCEL_STORE")
    assert device.store_root().parts[-2:] == ("data", "store")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a process start its peak afresh")
def test_peak_memory_sees_what_is_gone_again_and_starts_afresh():
    device.reset_peak_memory()
    before = device.peak_memory()
    block = bytearray(96 * 2**20)
    del block
    assert device.peak_memory() - before >= 90 * 2**20
    device.reset_peak_memory()
    assert device.peak_memory() - before < 32 * 2**20


def test_peak_memory_without_proc_is_the_peak_since_the_start(monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(device.Path, "read_text", refuse)
    assert device.peak_memory() >= device.psutil.Process().memory_info().rss * 0.9


class Gpus:
    """A driver with one GPU and these processes on it."""

    def __init__(self, monkeypatch, pids):
        self.opened = 0
        processes = [SimpleNamespace(pid=pid, usedGpuMemory=100) for pid in pids]
        for name, function in {
            "nvmlInit": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: processes,
        }.items():
            monkeypatch.setattr(pynvml, name, function)

    def _count(self, by):
        self.opened += by


@pytest.mark.parametrize(
    ("container", "pids", "others", "foreign"),
    [
        (False, [], (), 0),
        (False, ["own"], (), 0),
        (False, ["own", 11], (11,), 0),  # a worker of ours is not foreign
        (False, ["own", 11, 12], (11,), 1),
        (True, [4001], (), 0),  # our own process under the host's number
        (True, [4001, 4002, 4003], (11,), 1),
    ],
)
def test_foreign_gpu_processes(monkeypatch, container, pids, others, foreign):
    gpus = Gpus(monkeypatch, [os.getpid() if pid == "own" else pid for pid in pids])
    monkeypatch.setattr(device, "_in_container", lambda: container)
    assert device.foreign_gpu_processes(others) == foreign
    assert Conditions.now(others).foreign_gpu == foreign
    assert gpus.opened == 0  # every nvmlInit has its nvmlShutdown


def test_device_memory_counts_this_process_only(monkeypatch):
    Gpus(monkeypatch, [os.getpid(), 11])
    assert device.device_memory() == 100


def test_no_gpu_is_an_answer(monkeypatch):
    def no_driver():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert device.device_memory() is None
    assert device.foreign_gpu_processes() == 0


def test_finished_children_count_as_our_own_work():
    before = Conditions.now()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
    after = Conditions.now()
    assert after.own - before.own >= 0.35


AT_REST = Conditions(monotonic=100.0, machine_busy=500.0, stolen=1.0, own=40.0, load=0.5, frequency=3000.0, temperature=None, foreign_gpu=0)


@pytest.mark.parametrize(
    ("changes", "passed", "words"),
    [
        ({"machine_busy": 510.0, "own": 50.0}, True, "took 0% of the CPU time"),  # all of it was our own
        ({"machine_busy": 511.0, "own": 50.0}, True, "took 5% of the CPU time"),
        ({"machine_busy": 514.0, "own": 50.0}, False, "took 20% of the CPU time"),
        ({"stolen": 5.0}, False, "the hypervisor 20%"),
        ({"machine_busy": 502.0, "stolen": 3.0}, False, "took 10% of the CPU time, the hypervisor 10%"),
        ({"foreign_gpu": 2}, False, "2 foreign processes on the GPU"),
        ({"temperature": 91.0}, True, "hottest sensor 91"),
        ({"frequency": 1200.0}, True, "clock 3000 to 1200 MHz"),
        ({"own": 45.0}, True, "took 0% of the CPU time"),  # clocks of processes and machine disagree a little: never below 0
    ],
)
def test_quiet(monkeypatch, changes, passed, words):
    monkeypatch.setattr(device.psutil, "cpu_count", lambda: 2)
    after = dataclasses.replace(AT_REST, monotonic=110.0, **changes)
    check = quiet(AT_REST, after)
    assert (check.passed, check.fatal) == (passed, False)
    assert words in check.detail


@pytest.fixture
def slot(tmp_path, monkeypatch):
    """A measurement slot of its own, so that these tests neither wait for nor stop a real one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def attempt(wait, answers):
    try:
        with measuring("second", wait=wait):
            answers.append("measured")
    except BusyError as error:
        answers.append(str(error))


def test_a_second_thread_is_told_who_is_in_the_way(slot):
    answers = []
    with measuring("text-encoder pytorch"):
        thread = threading.Thread(target=attempt, args=(0.2, answers))
        thread.start()
        thread.join()
    assert f"text-encoder pytorch in process {os.getpid()}" in answers[0]
    assert "after 0.2 s" in answers[0]
    assert "Stop button" in answers[0]


def test_a_second_thread_waits_for_its_turn(slot):
    answers = []
    with measuring("first"):
        thread = threading.Thread(target=attempt, args=(30, answers))
        thread.start()
        time.sleep(0.2)
        assert not answers
    thread.join()
    assert answers == ["measured"]


def test_the_slot_is_free_again_after_an_error(slot):
    with pytest.raises(KeyError), measuring("first"):
        raise KeyError
    answers = []
    attempt(0, answers)
    assert answers == ["measured"]


HOLD = """
import sys
from accel_helpers.device import measuring
with measuring("the other notebook"):
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_another_process_holds_the_slot_and_its_death_frees_it(slot):
    other = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "holding\n"
        answers = []
        attempt(0.1, answers)
        assert f"the other notebook in process {other.pid}" in answers[0]
        other.kill()
        other.wait()
    attempt(5, answers)
    assert answers[1] == "measured"


def test_a_damaged_note_about_the_holder_still_gives_a_message(slot):
    answers = []
    with measuring("first"):
        note = next(slot.glob("accel-measuring-*.json"))
        note.write_text("{")
        attempt(0, answers)
    assert "another process is still measuring" in answers[0]


def test_a_full_disk_does_not_stop_a_measurement(slot, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(device.Path, "write_text", full)
    answers = []
    attempt(0, answers)
    assert answers == ["measured"]
