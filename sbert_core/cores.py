"""The number of processor cores that a process may use."""

import os


def usable_cores() -> int:
    """Returns the number of cores that this process may use: containers and schedulers often assign only some."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores(processes: int) -> int:
    """Returns the number of cores for each of `processes` on this machine; call it on the worker, not on the driver."""
    return max(1, usable_cores() // processes)
