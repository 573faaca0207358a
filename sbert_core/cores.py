"""How many processors there are to work with."""

import os


def usable_cores() -> int:
    """The processors that this process may use: containers and job schedulers give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores(processes: int) -> int:
    """How many of this machine's cores each of its processes may use; to be asked on the worker, not on the driver."""
    return max(1, usable_cores() // processes)
