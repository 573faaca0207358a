"""Caches that live as long as the process.

A cached function must give the same result for the same arguments while the process runs. Every cache is made here, so
that tests and benchmarks can empty all of them and see files as a new process would.
"""

import collections
import functools
import threading
from collections.abc import Callable, Hashable
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


class ByteCache:
    """Keeps the values that were used last, up to `max_bytes`; the value that was loaded last always stays.

    Threads of a process may share a cache. Two of them may load the same value at the same time, which costs time only.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        _clear_functions.append(self.clear)

    def get(self, key: Hashable, load: Callable[[], Any]) -> Any:
        """The value of a key, from the cache or from `load`; a value must have `nbytes`."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = load()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > 1 and sum(each.nbytes for each in self._values.values()) > self._max_bytes:
                self._values.popitem(last=False)
        return value

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def clear(self) -> None:
        """Forgets all values."""
        with self._lock:
            self._values.clear()
