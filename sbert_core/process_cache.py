"""Caches that live as long as the process.

A cached function must give the same result for the same arguments while the process runs. Every cache is made here, so
that tests and benchmarks can empty all of them and see files as a new process would.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_clear_functions: list[Callable[[], None]] = []


def process_cache(max_entries: int) -> Callable[[_Function], _Function]:
    """Caches the results of a function by its arguments, which must be hashable; the oldest results are dropped."""

    def decorate(function: _Function) -> _Function:
        cached = functools.lru_cache(maxsize=max_entries)(function)
        _clear_functions.append(cached.cache_clear)
        return cached  # type: ignore[return-value]

    return decorate


def clear_process_caches() -> None:
    """Empties every cache of this process."""
    for clear in _clear_functions:
        clear()
