"""Terms of texts in any script."""

import pytest

from sbert_core.clusters.names.words import split_terms


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
