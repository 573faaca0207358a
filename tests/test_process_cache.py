"""Caches of a process are bounded, and can be emptied together."""

from sbert_core.process_cache import clear_process_caches, process_cache


def test_results_are_kept_until_the_caches_are_emptied():
    calls = []

    @process_cache(max_entries=2)
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    assert [double(1), double(1), double(2), double(3)] == [2, 2, 4, 6]
    assert calls == [1, 2, 3]
    double(1)  # was dropped for 3
    assert calls == [1, 2, 3, 1]
    clear_process_caches()
    double(1)
    assert calls == [1, 2, 3, 1, 1]
