"""Which of a model's prompts goes before a query, and which before a document.

The names are those of sentence-transformers, so that a folder means the same in both.
"""

from collections.abc import Mapping, Sequence

from sbert_core.errors import DataError

QUERY = "query"
DOCUMENT = "document"
_DOCUMENT_NAMES = (DOCUMENT, "passage", "corpus")


def query_prompt(prompts: Mapping[str, str]) -> str:
    """What goes before a query: the prompt `query`, else nothing, whatever the default prompt is."""
    return prompts.get(QUERY, "")


def document_prompt(prompts: Mapping[str, str]) -> str:
    """What goes before a document: the first that is there of `document`, `passage` and `corpus`, else nothing."""
    return next((prompts[name] for name in _DOCUMENT_NAMES if name in prompts), "")


def prompts_of_columns(columns: Sequence[Sequence[str]]) -> dict[str, str]:
    """The prompts by name of a model that was trained with these: of each data set, one prompt per text column.

    The first column's is that of queries, the others' is that of documents; a single column's is both. Data sets
    without any prompt have no say. A folder has one prompt for queries and one for documents, so that all data sets
    must agree.
    """
    found = {_roles(prompts) for prompts in columns if any(prompts)}
    if not found:
        return {QUERY: "", DOCUMENT: ""} if any(columns) else {}
    if len(found) > 1:
        told = " and ".join(f"query {query!r} with document {document!r}" for query, document in sorted(found))
        raise DataError(
            f"the prompts of the data sets differ ({told}), and a model has one of each: say which it keeps with "
            "`prompts: {query: ..., document: ...}` of the plan"
        )
    query, document = found.pop()
    return {QUERY: query, DOCUMENT: document}


def _roles(prompts: Sequence[str]) -> tuple[str, str]:
    first, *others = prompts
    if len(set(others)) > 1:
        raise DataError(
            f"the prompts {list(prompts)} have {len(set(others))} for documents, and a model has one: say which it "
            "keeps with `prompts: {query: ..., document: ...}` of the plan"
        )
    return first, others[0] if others else first
