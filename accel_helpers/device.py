"""The machine as a measurement sees it: usable CPUs and memory, CPU time, peak memory, noise, and the one-measurement-at-a-time lock.

Everything here answers on a machine without a GPU, without cgroups and without sensors.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from accel_helpers.errors import BusyError, StoppedError
from accel_helpers.records import Check

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # its inode number on every Linux (PROC_PID_INIT_INO in the kernel's proc_ns.h)
NOISE_LIMIT = 0.15
"""Share of the usable CPU time that others may take during a measurement before it is called noisy."""


def store_root() -> Path:
    """Where fetched and built files live: ``$ACCEL_STORE``, or ``data/store`` beside the package."""
    return Path(os.environ.get("ACCEL_STORE") or Path(__file__).resolve().parent.parent / "data" / "store")


def _own_cgroups() -> list[Path]:
    """This process's cgroup folder and its parents, for cgroup v2 and v1's cpu and memory controllers; empty where there are none."""
    folders = []
    with suppress(OSError, ValueError):
        for line in _OWN_CGROUP.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = _CGROUP / controllers if controllers else _CGROUP
            folder = root / path.lstrip("/")
            folders += [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
    return folders


def _numbers(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def cpu_quota() -> float | None:
    """CPUs' worth of time that the tightest cgroup grants, or None without a limit."""
    quotas = []
    for folder in _own_cgroups():
        match _numbers(folder / "cpu.max"), _numbers(folder / "cpu.cfs_quota_us"), _numbers(folder / "cpu.cfs_period_us"):
            case ([quota, period], _, _) | ([], [quota], [period]) if quota.isdigit() and period.isdigit() and int(period):
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def usable_cpus() -> int:
    """CPUs that this process may keep busy: its affinity, cut by the cgroup's quota; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, min(allowed, int(quota))) if quota else allowed


def usable_memory() -> int:
    """Bytes of memory that this process may use: physical memory, cut by the cgroup's limit."""
    limits = [int(psutil.virtual_memory().total)]
    for folder in _own_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(value) for value in _numbers(folder / name) if value.isdigit()]
    return min(limits)


def reset_peak_memory() -> None:
    """Start :func:`peak_memory` afresh, where the system lets a process do so (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The process's largest resident set in bytes since :func:`reset_peak_memory`, or since its start."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    memory = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return int(memory.peak_wset)
    import resource

    return max(int(memory.rss), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # bytes on macOS; since the start


def device_memory() -> int | None:
    """Bytes of GPU memory that this process holds, over all GPUs; None without a GPU that tells."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        held = None
        for index in range(pynvml.nvmlDeviceGetCount()):
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index)):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    held = (held or 0) + int(process.usedGpuMemory)
        return held
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def foreign_gpu_processes(others: tuple[int, ...] = ()) -> int:
    """How many processes run on the GPUs, without this one and the process ids in ``others``; 0 without a GPU.

    In a container the driver gives process ids of the host, where ours have other numbers: there as many as may be ours are left out.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = {process.pid for handle in handles for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()
    own = {os.getpid(), *others}
    return max(0, len(found) - len(own)) if _in_container() else len(found - own)


def _in_container() -> bool:
    """Whether process ids here differ from those of the host."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino != _FIRST_PID_NAMESPACE
    return False


@dataclass(frozen=True)
class Conditions:
    """What else the machine was doing at one moment."""

    monotonic: float
    machine_busy: float  # CPU seconds that all processes have used
    stolen: float  # CPU seconds that the hypervisor gave to others
    own: float  # CPU seconds that this process, its finished children and ``others`` have used
    load: float  # one-minute load average
    frequency: float | None  # MHz
    temperature: float | None  # degrees Celsius, the hottest sensor
    foreign_gpu: int

    @classmethod
    def now(cls, others: tuple[int, ...] = ()) -> Conditions:
        """A snapshot; ``others`` are process ids whose CPU time counts as our own."""
        times = psutil.cpu_times()
        own = 0.0
        for pid in (os.getpid(), *others):
            with suppress(psutil.Error):
                used = psutil.Process(pid).cpu_times()
                own += used.user + used.system + used.children_user + used.children_system
        frequency = None
        with suppress(OSError, NotImplementedError):
            current = psutil.cpu_freq()
            frequency = current.current if current else None
        readings: list[float] = []
        if hasattr(psutil, "sensors_temperatures"):
            with suppress(OSError):
                readings = [one.current for sensors in psutil.sensors_temperatures().values() for one in sensors]
        stolen = getattr(times, "steal", 0.0)
        return cls(
            monotonic=time.perf_counter(),
            machine_busy=times.user
            + times.system
            + getattr(times, "nice", 0.0)
            + getattr(times, "irq", 0.0)
            + getattr(times, "softirq", 0.0),
            stolen=stolen,
            own=own,
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
            frequency=frequency,
            temperature=max(readings, default=None),
            foreign_gpu=foreign_gpu_processes(others),
        )


def quiet(before: Conditions, after: Conditions) -> Check:
    """Whether the machine was quiet between two snapshots: other processes, the hypervisor and foreign GPU work stayed small."""
    available = max(after.monotonic - before.monotonic, 1e-9) * (psutil.cpu_count() or 1)
    foreign = max(0.0, (after.machine_busy - before.machine_busy) - (after.own - before.own)) / available
    steal = max(0.0, after.stolen - before.stolen) / available
    parts = [f"other processes took {foreign:.0%} of the CPU time, the hypervisor {steal:.0%}; load average {after.load:.1f}"]
    if before.frequency and after.frequency:
        parts.append(f"clock {before.frequency:.0f} to {after.frequency:.0f} MHz")
    if after.temperature is not None:
        parts.append(f"hottest sensor {after.temperature:.0f} degrees C")
    if after.foreign_gpu:
        parts.append(f"{after.foreign_gpu} foreign processes on the GPU")
    passed = foreign + steal <= NOISE_LIMIT and not after.foreign_gpu
    return Check("quiet machine", passed, "; ".join(parts), fatal=False)


@contextmanager
def measuring(what: str, wait: float = 60.0, stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold this machine's one measurement slot. Threads and other processes (a second notebook, say) wait their turn.

    Args:
        what: what is measured, for the message that the other one prints.
        wait: seconds to wait before giving up.
        stop: asked while waiting; true gives up at once.

    Raises:
        StoppedError: ``stop`` said so.
        BusyError: another measurement did not end within ``wait`` seconds.
    """
    from filelock import FileLock, Timeout

    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(tempfile.gettempdir()) / f"accel-measuring-{user}.lock"
    holder = path.with_suffix(".json")
    try:
        lock = FileLock(path)
        lock.acquire(timeout=wait, poll_interval=0.05, cancel_check=stop)
    except Timeout:
        if stop():
            raise StoppedError("Stopped.", "It was waiting for another measurement.") from None
        try:
            running = json.loads(holder.read_text())
            who = f"{running['what']} in process {running['pid']}"
        except (OSError, ValueError, KeyError):
            who = "another process"
        raise BusyError(
            f"One measurement at a time: {who} is still measuring on this machine after {wait:g} s.",
            "Wait for it or stop it (another notebook's Stop button), then run this again.",
        ) from None
    try:
        with suppress(OSError):  # on a full disk the next one only learns less of who is in the way
            holder.write_text(json.dumps({"what": what, "pid": os.getpid()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
