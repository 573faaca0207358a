"""Stop words are learned from the corpus, in any language."""

import pytest

from sbert_core.clusters.names.cluster_names import name_clusters
from sbert_core.clusters.names.stop_words import common_terms
from sbert_core.clusters.names.words import split_terms
from tests.cluster_texts import counts_of, make_texts

# Stop words and topics by language; the first stop words are not in FUNCTION_WORDS.
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


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("clusters", [5, 80])
def test_stop_words_are_learned(language, clusters):
    stop, topics = (words.split() for words in LANGUAGES[language])
    if clusters > len(topics):
        topics = [f"{topic} topic{cluster}" for cluster, topic in enumerate(topics * (clusters // len(topics)))]
    counts = counts_of(make_texts(stop, topics, clusters, 40))
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


def test_few_texts_are_not_evidence():
    assert common_terms(counts_of({0: ["red apple"] * 4, 1: ["red car"] * 4})) == frozenset()


def test_no_texts_have_no_stop_words():
    assert common_terms({}) == frozenset()
