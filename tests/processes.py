"""The worker processes that this test process, or anything it started, has running."""

import psutil


def workers():
    """Worker processes that are alive, however deep below this one."""
    return [one for one in psutil.Process().children(recursive=True) if any("bench.worker" in word for word in _words(one))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []
