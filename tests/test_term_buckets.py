"""Counts of terms, added up in buckets."""

from transforms.clusters.term_buckets import N_BUCKETS, merge_bucket, partition_terms


def test_terms_are_added_up_by_bucket_and_the_rarest_are_left_out():
    parts = [{0: {"often": 3, "seldom": 1}, 1: {"often": 1}}, {0: {"often": 2}, -1: {"else": 5}}]
    partitioned: dict[int, list[bytes]] = {}
    for part in parts:
        for bucket, content in partition_terms(part):
            partitioned.setdefault(bucket, []).append(content)
    assert all(0 <= bucket < N_BUCKETS for bucket in partitioned)
    merged = [merge_bucket(contents) for contents in partitioned.values()]
    assert sum(found.get(0, {}).get("often", 0) for found in merged) == 5
    assert sum(found.get(-1, {}).get("else", 0) for found in merged) == 5
    many = partition_terms({0: {f"term{number}": number for number in range(200)}})
    assert 0 < sum(len(merge_bucket([content], max_terms=1)[0]) for _, content in many) <= N_BUCKETS
