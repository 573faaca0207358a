"""Which of a model's prompts is for queries, and which for documents.

The names are those of sentence-transformers, so that a folder means the same in both.
"""

from collections.abc import Mapping, Sequence

from sbert_core.errors import DataError

QUERY = "query"
DOCUMENT = "document"
_DOCUMENT_NAMES = (DOCUMENT, "passage", "corpus")


def query_prompt(prompts: Mapping[str, str]) -> str:
    """Returns the prefix of a query: the prompt `query`, or nothing; the default prompt has no effect."""
    return prompts.get(QUERY, "")


def document_prompt(prompts: Mapping[str, str]) -> str:
    """Returns the prefix of a document: the first of the prompts `document`, `passage` and `corpus`, or nothing."""
    return next((prompts[name] for name in _DOCUMENT_NAMES if name in prompts), "")


def prompts_of_columns(columns: Sequence[Sequence[str]]) -> dict[str, str]:
    """Returns the prompts to save with a model, by name, given the prompts of each training data set, one per column.

    The first column's prompt is for queries, the others' for documents; a single column's is for both. A model has one
    prompt for queries and one for documents, so all data sets with prompts must agree.
    """
    found = {_query_and_document(prompts) for prompts in columns if any(prompts)}
    if not found:
        return {QUERY: "", DOCUMENT: ""} if any(columns) else {}
    if len(found) > 1:
        listed = " and ".join(f"query {query!r} with document {document!r}" for query, document in sorted(found))
        raise DataError(
            f"the prompts of the data sets differ ({listed}), but a model has one of each: choose them with "
            "`prompts: {query: ..., document: ...}` in the plan"
        )
    query, document = found.pop()
    return {QUERY: query, DOCUMENT: document}


def _query_and_document(prompts: Sequence[str]) -> tuple[str, str]:
    first, *others = prompts
    if len(set(others)) > 1:
        raise DataError(
            f"the prompts {list(prompts)} have {len(set(others))} for documents, but a model has one: choose it with "
            "`prompts: {query: ..., document: ...}` in the plan"
        )
    return first, others[0] if others else first
