"""Names of clusters: terms of any script, c-TF-IDF by another derivation, learned stop words, names that differ."""

import random
from collections import Counter

import numpy as np
import pytest

from sbert_core.clusters.exemplars import choose_exemplars
from sbert_core.clusters.names.terms import (
    ClusterTerms,
    class_tf_idf,
    common_terms,
    count_terms,
    merge_counts,
    name_clusters,
    split_terms,
    terms_over_time,
    trim_counts,
)

SHOP = {
    0: ["Where is my parcel?", "My parcel has not arrived", "The parcel is late", "parcels arrive late"],
    1: ["I want a refund", "When is my refund paid?", "The refund is not paid", "Refunds take weeks"],
    2: ["My credit card was declined", "The credit card is declined again", "Why was my credit card declined?"],
    -1: ["Is it my turn?", "The end", "What was that?"],
}
# stop words and topics by language; the first stop words are in no list of the module
LANGUAGES = {
    "en": ("hello thanks regards the my is", "refund parcel password invoice warranty"),
    "de": ("hallo danke grüße das ich ist", "rückgabe paket kennwort rechnung garantie"),
    "es": ("hola gracias saludos el mi es", "reembolso paquete contraseña factura garantía"),
    "fr": ("bonjour merci cordialement le mon est", "remboursement colis identifiant facture garantie"),
    "ru": ("здравствуйте спасибо пожалуйста мой это не", "возврат посылка пароль счёт гарантия"),
    "zh": ("你好 谢谢 请问 我的 没有 什么", "退款 包裹 密码 发票 保修"),
    "ja": ("感謝 大変 本当 です ます から", "返金 荷物 暗証 請求 保証"),
    "th": ("สวัสดี ขอบคุณ ฉัน ของ ไม่ ได้", "คืนเงิน พัสดุ รหัส ใบเสร็จ ประกัน"),
}


def counts_of(clusters):
    texts = [(text, label) for label, texts in clusters.items() for text in texts]
    return count_terms(*zip(*texts, strict=True)) if texts else {}


def corpus(stop, topics, clusters, texts, seed=0):
    """Texts of words every cluster has and of one topic word, which is of its cluster only."""
    rng = random.Random(seed)
    return {
        cluster: [" ".join(rng.sample([*rng.sample(stop, 3), topics[cluster % len(topics)]], 4)) for _ in range(texts)]
        for cluster in range(clusters)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", ["the", "cat"]),
        ("CREDIT-card, card", ["credit", "card", "credit card", "card"]),
        ("ÜBER Straße été", ["über", "straße", "été"]),
        ("e\u0301lan \uff21\uff22", ["élan", "ab", "élan ab"]),  # composed, and wide letters as narrow ones
        ("İzmir", ["izmir"]),
        ("a 1 42 x7 covid19 1️⃣ 😀", ["covid19"]),
        ("don’t it's l'adresse", ["don't", "it", "adresse"]),
        ("Где моя посылка", ["где", "моя", "посылка"]),
        ("комп'ютер", ["комп'ютер"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("हिन्दी", ["हिन्दी"]),
        ("돈 카드를", ["돈", "카드를", "돈 카드를"]),
        ("信用卡 卡", ["信用", "用卡", "卡"]),
        ("コーヒーを飲む", ["コーヒー", "を", "飲", "む"]),
        ("ﾊﾟﾝ", ["パン"]),
        ("รหัส น้ำ", ["รหั", "หัส", "น้ำ"]),
        ("iPhone東京", ["iphone", "東京"]),
        ("", []),
        ("?! 12", []),
    ],
)
def test_terms_of_any_script(text, expected):
    assert split_terms(text) == expected


def test_counts_of_clusters():
    counts = count_terms(["a new card", "new", "?", "old"], np.array([3, 3, 5, -1]))
    assert counts == {3: Counter({"new": 2, "card": 1, "new card": 1}), 5: Counter(), -1: Counter(["old"])}
    assert all(type(cluster) is int for cluster in counts)


def test_batches_in_any_order():
    texts = [(text, label) for label, texts in SHOP.items() for text in texts]
    whole = counts_of(SHOP)
    for seed in range(5):
        random.Random(seed).shuffle(texts)
        parts = [count_terms(*zip(*texts[start : start + 4], strict=True)) for start in range(0, len(texts), 4)]
        merged = merge_counts(parts)
        assert merged == whole
        assert name_clusters(merged) == name_clusters(whole)
        assert trim_counts(merged, 5) == trim_counts(whole, 5)
        assert merge_counts([merge_counts(parts[:2]), merge_counts(parts[2:])]) == whole
        assert (class_tf_idf(merged).matrix != class_tf_idf(whole).matrix).nnz == 0


def test_merge_leaves_its_parts_alone():
    part = {1: Counter("ab")}
    merge_counts([part, part])
    assert part == {1: Counter("ab")}


def test_trim_drops_rare_terms_and_ties():
    counts = {0: Counter(a=3, b=1, c=1), 1: Counter(a=1, b=1, d=2)}
    assert trim_counts(counts, 4) == counts
    assert trim_counts(counts, 3) == {0: Counter(a=3, b=1), 1: Counter(a=1, b=1, d=2)}
    assert trim_counts(counts, 2) == {0: Counter(a=3), 1: Counter(a=1)}  # b and d come as often
    assert trim_counts(counts, 0) == {0: Counter(), 1: Counter()}


def test_formula():
    rng = np.random.default_rng(0)
    table = rng.poisson(0.7, (6, 40))
    table[:, table.sum(axis=0) == 0] = 1
    table[4] = 0  # a cluster without terms
    terms = [f"t{number:02d}" for number in range(40)]
    counts = {row - 1: Counter({t: int(n) for t, n in zip(terms, table[row], strict=True) if n}) for row in range(6)}
    found = class_tf_idf(counts)
    # sklearn's l1 norm and BERTopic's idf, term by term
    mean = int(np.mean([line.sum() for line in table]))
    expected = np.array(
        [
            [n / max(line.sum(), 1) * np.log(mean / table[:, column].sum() + 1) for column, n in enumerate(line)]
            for line in table
        ]
    )
    assert found.clusters == (-1, 0, 1, 2, 3, 4)
    assert list(found.terms) == sorted(terms)
    np.testing.assert_allclose(found.matrix.toarray(), expected, rtol=1e-14)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("clusters", [5, 200])
def test_stop_words_are_learned(language, clusters):
    stop, topics = (words.split() for words in LANGUAGES[language])
    if clusters > len(topics):
        topics = [f"{topic} topic{cluster}" for cluster, topic in enumerate(topics * (clusters // len(topics)))]
    counts = counts_of(corpus(stop, topics, clusters, 60))
    learned = common_terms(counts)
    for word in stop:
        assert learned.intersection(split_terms(word)), word
    for row in name_clusters(counts):
        assert set(split_terms(topics[row.cluster])) & set(split_terms(row.terms[0])), row
        assert not set(row.terms[:1]) & set(stop)


def test_two_clusters_keep_their_topics():
    clusters = {
        0: ["the team won the football match", "a football match in the rain", "our team lost the match"] * 20,
        1: ["the soup needs salt", "salt the soup and stir", "our soup in the pot", "a match lit the stove"] * 20,
    }
    counts = counts_of(clusters)
    learned = common_terms(counts)
    assert "the" in learned
    assert not learned & {"team", "football", "match", "soup", "salt", "pot", "won", "stove"}
    football, soup = name_clusters(counts)
    assert {"football match", "team"} <= set(football.terms[:3])
    assert {"soup", "salt"} <= set(soup.terms[:3])


def test_few_texts_are_no_evidence():
    assert common_terms(counts_of({0: ["red apple"] * 4, 1: ["red car"] * 4})) == frozenset()


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


def test_top_and_ties():
    counts = {0: Counter({"delta": 1, "alpha": 1, "omega": 1, "beta": 1}), 1: Counter({"zeta": 4})}
    assert name_clusters(counts, top=2)[0] == ClusterTerms(0, ("alpha", "beta"), "alpha, beta")
    assert name_clusters(counts)[0].terms == ("alpha", "beta", "delta", "omega")


def test_one_cluster():
    (row,) = name_clusters(counts_of({4: ["my parcel is late", "a late parcel", "where is the parcel"]}))
    assert row.cluster == 4
    assert row.terms[:2] == ("parcel", "late")


def test_only_stop_words_are_better_than_nothing():
    (row,) = name_clusters(counts_of({0: ["what is this"]}))
    assert row.name == "is, this, what"


def test_no_names():
    assert name_clusters({}) == []
    assert name_clusters(counts_of({-1: ["one text"]})) == []
    assert name_clusters({5: Counter()}) == [ClusterTerms(5, (), "cluster 5")]
    assert class_tf_idf({}).matrix.shape == (0, 0)
    assert common_terms({}) == frozenset()
    assert merge_counts([]) == {}
    assert count_terms([], []) == {}
    assert terms_over_time({}) == {}


def test_terms_over_time():
    counts = {
        (0, "2024"): Counter({"parcel": 6, "snow": 3}),
        (0, "2025"): Counter({"parcel": 6, "strike": 3}),
        (1, "2024"): Counter({"refund": 9, "late": 1}),
        (-1, "2024"): Counter({"late": 3}),
    }
    found = terms_over_time(counts, top=2)
    assert found == {
        (0, "2024"): ("parcel", "snow"),
        (0, "2025"): ("parcel", "strike"),
        (1, "2024"): ("refund", "late"),
    }
    assert found == terms_over_time(dict(reversed(counts.items())), top=2)


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


def unit(*degrees):
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1).astype(np.float32)


def test_exemplars_are_near_and_diverse():
    flat = np.concatenate([unit(20, 22), np.zeros((2, 1))], axis=1)
    vectors = np.concatenate([flat, [[np.cos(0.43), 0, np.sin(0.43)], [0, 0, 1]]]).astype(np.float32)
    centre = np.array([1, 0, 0], np.float32)
    assert choose_exemplars(vectors, centre, 2) == [0, 2]  # 1 is nearer, but too like 0
    assert choose_exemplars(vectors, centre, 2, diversity=0) == [0, 1]
    assert choose_exemplars(vectors * 7, centre * 3, 2) == [0, 2]


def test_exemplars_are_not_chosen_twice():
    vectors = unit(0, 0, 30, 30, 0)
    assert choose_exemplars(vectors, np.array([1, 0], np.float32), 5) == [0, 2]
    assert choose_exemplars(np.tile(vectors[:1], (4, 1)), vectors[0]) == [0]


def test_exemplars_of_nothing():
    assert choose_exemplars(np.empty((0, 2), np.float32), np.array([1, 0])) == []
    assert choose_exemplars(unit(0, 5), np.array([1, 0]), 0) == []
    assert choose_exemplars(np.zeros((2, 2), np.float32), np.array([1, 0]), 1) == [0]


def test_exemplars_against_the_definition():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8)) + 2
    centre = vectors.mean(axis=0)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    chosen = choose_exemplars(vectors, centre, 6, diversity=0.4)
    for step in range(6):
        scores = {
            row: 0.6 * cosine(vectors[row], centre)
            - 0.4 * max((cosine(vectors[row], vectors[other]) for other in chosen[:step]), default=0)
            for row in range(40)
            if row not in chosen[:step]
        }
        assert chosen[step] == max(scores, key=scores.get)
