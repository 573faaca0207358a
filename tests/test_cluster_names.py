"""Names of clusters: the best terms of any script, names that differ, terms over time."""

from collections import Counter

import numpy as np
import pytest

from sbert_core.clusters.names.cluster_names import ClusterTerms, name_clusters, terms_over_time
from tests.cluster_texts import SHOP, counts_of


def test_names():
    names = {row.cluster: row for row in name_clusters(counts_of(SHOP))}
    assert list(names) == [0, 1, 2]  # noise has none
    assert names[0].terms[0] == "parcel"
    assert "parcels" not in names[0].terms
    assert names[1].terms[0] == "refund"
    assert "credit card" in names[2].name
    assert not {"credit", "card"} & set(names[2].terms)
    assert names[2].name == ", ".join(names[2].terms[:3])


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["信用卡被拒绝", "我的信用卡丢了", "申请信用卡", "信用卡在哪里"], "信用卡"),
        (["クレジットカードを失くした", "クレジットカードが使えない"], "クレジットカード"),
        (["ลืมรหัสผ่าน", "เปลี่ยนรหัสผ่าน", "รหัสผ่านใหม่"], "รหัสผ่าน"),
        (["카드를 잃어버렸다", "카드가 없다", "카드를 주세요"], "카드를"),
        (["потеряла карту", "карту украли", "новая карта"], "карту"),
        (["بطاقة الائتمان مفقودة", "أين بطاقة الائتمان"], "بطاقة الائتمان"),
    ],
)
def test_words_of_other_scripts(texts, word):
    found = name_clusters(counts_of({0: texts, 1: ["hello world", "hello sun"], 2: ["where am i", "who is it"]}))
    assert word in found[0].terms[:2]
    assert len([term for term in found[0].terms if term[:2] == word[:2]]) == 1  # no other form of it


def test_noise_is_background():
    clusters = {0: ["blue card", "card blue"], 1: ["red", "red wine"]}
    plain = name_clusters(counts_of(clusters))
    noisy = name_clusters(counts_of(clusters | {-1: ["blue sky blue sea"] * 5}))
    assert plain[0].terms[0] == "blue"
    assert noisy[0].terms[0] == "card"
    assert len(noisy) == 2


def test_names_differ():
    same = ["lost parcel", "where is the parcel"]
    rows = name_clusters(counts_of({3: same, 1: same, 2: same, 9: ["?"], 4: ["parcel"], 7: ["!"]}))
    assert {row.cluster: row.name for row in rows} == {
        1: "lost, parcel, 1",
        2: "lost, parcel, 2",
        3: "lost, parcel, 3",
        4: "parcel",
        7: "cluster 7",
        9: "cluster 9",
    }


def test_further_terms_before_the_number():
    shared = {"aaa": 19, "bbb": 18, "ccc": 17}
    counts = {0: Counter(shared | {"done": 2}), 1: Counter(shared | {"dtwo": 2}), 5: Counter({"xxx": 500})}
    assert [row.name for row in name_clusters(counts)] == ["aaa, bbb, ccc, done", "aaa, bbb, ccc, dtwo", "xxx"]


def test_identical_texts():
    rows = name_clusters(counts_of(dict.fromkeys(range(3), ["the parcel is lost"] * 50)))
    assert [row.name for row in rows] == [f"lost, parcel, {n}" for n in range(3)]


def test_maximum_number_of_terms_and_ties():
    counts = {0: Counter({"delta": 1, "alpha": 1, "omega": 1, "beta": 1}), 1: Counter({"zeta": 4})}
    assert name_clusters(counts, max_terms=2)[0] == ClusterTerms(0, ("alpha", "beta"), "alpha, beta")
    assert name_clusters(counts)[0].terms == ("alpha", "beta", "delta", "omega")


def test_one_cluster():
    (row,) = name_clusters(counts_of({4: ["my parcel is late", "a late parcel", "where is the parcel"]}))
    assert row.cluster == 4
    assert row.terms[:2] == ("parcel", "late")


def test_a_cluster_of_stop_words_is_named_by_them():
    (row,) = name_clusters(counts_of({0: ["what is this"]}))
    assert row.name == "is, this, what"


def test_no_clusters_have_no_names():
    assert name_clusters({}) == []
    assert name_clusters(counts_of({-1: ["one text"]})) == []
    assert name_clusters({5: Counter()}) == [ClusterTerms(5, (), "cluster 5")]
    assert terms_over_time({}) == {}


def test_terms_over_time():
    counts = {
        (0, "2024"): Counter({"parcel": 6, "snow": 3}),
        (0, "2025"): Counter({"parcel": 6, "strike": 3}),
        (1, "2024"): Counter({"refund": 9, "late": 1}),
        (-1, "2024"): Counter({"late": 3}),
    }
    found = terms_over_time(counts, max_terms=2)
    assert found == {
        (0, "2024"): ("parcel", "snow"),
        (0, "2025"): ("parcel", "strike"),
        (1, "2024"): ("refund", "late"),
    }
    assert found == terms_over_time(dict(reversed(counts.items())), max_terms=2)


def test_terms_over_time_are_the_mean_of_then_and_always():
    counts = {(0, 1): Counter(a1=1, b1=3), (0, 2): Counter(a1=9, b1=2), (1, 1): Counter(c1=7, d1=1)}
    # of cluster 0 a1 has 10 and b1 5 of 15; in period 1 a1 has 1 and b1 3 of 4; the mean is rounded down to 11
    a, b = np.log(11 / 10 + 1), np.log(11 / 5 + 1)
    then = np.array([1 * a, 3 * b]) / (1 * a + 3 * b)
    always = np.array([10 * a, 5 * b]) / (10 * a + 5 * b)
    assert then[0] + always[0] < then[1] + always[1]
    assert always[0] > always[1]
    assert terms_over_time(counts)[0, 1] == ("b1", "a1")
    assert terms_over_time(counts)[0, 2] == ("a1", "b1")
