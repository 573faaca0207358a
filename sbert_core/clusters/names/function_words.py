"""Words that are never the topic of a text, in several languages."""

# The stop words of a corpus are learned (`stop_words.common_terms`). These are excluded even if a corpus has a single
# cluster, or one cluster per language. Words that are a topic in another language (war, hat, van) are not listed.
FUNCTION_WORDS = frozenset(
    """
    about also am an and any are as at be been but by can can't could did didn't do does doesn't don't for from had has
    hasn't have haven't he her his how if in into is isn't it its just me more my no not of on only or other our she
    should so some than that the their them then there these they this those to too very was wasn't we were what when
    where which who why will with won't would wouldn't you your
    aber als auch auf aus bei bis das dass dem den der des die doch ein eine einem einen einer eines er es für habe
    haben ich ihr ihre ihren im ist kann kein keine mein meine meinem meinen meiner mich mir mit nach nicht noch nur
    oder sein sich sie sind um und uns vom von vor warum wenn werden wie wir wird wo wurde wurden zu zum zur über
    al algo como con cuando cuál cómo de del donde dónde el ella en es ese esta este está ha han hay la las le les lo
    los mi mis muy más ni nos para pero por porque que qué se ser si sobre su sus también te tengo un una uno ya yo
    ai au aux avec ce ces cette dans des du elle est et il ils je leur ma mais mes moi mon ne nous ont ou où par pas
    pour pourquoi qu quand qui sa ses sont suis sur ta tes toi ton tu une votre vous été être
    che da dei della di gli ho non per sono è as dos em na não os um uma aan dat een er het ik niet op ook te voor zijn
    бы был была были было быть вам вас во вот все вы да для до его ее если есть еще ещё же за из или им их как которые
    кто ли меня мне мой мою моя мы на не нет но об он она они от по после при со так то только ты уже что чтобы это где
    jak jest mam mój nie się że 것 것은 것을 그 더 두 등 및 수 이 있는 있다 있습니다 한 할
    一个 一些 什么 他们 他的 你的 可以 如果 怎么 我们 我的 是否 没有
    """.split()  # noqa: RUF001, SIM905
)
