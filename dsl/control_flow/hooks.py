"""All that rewritten functions call, by the names that `rewrite` gives it."""

from ..core.object_model import UNSET
from .comprehensions import ComprehensionClause, folded, generated, listed, new_list
from .decisions import (
    and_,
    and_test,
    any_,
    assert_,
    call,
    choose,
    compare,
    handled,
    if_,
    is_,
    is_in,
    is_not,
    is_not_in,
    matched,
    not_,
    or_,
    or_test,
    result,
    whether_none,
)
from .loops import for_, items, while_
from .turn_number import indexed

__all__ = [
    "UNSET",
    "ComprehensionClause",
    "and_",
    "and_test",
    "any_",
    "assert_",
    "call",
    "choose",
    "compare",
    "folded",
    "for_",
    "generated",
    "handled",
    "if_",
    "indexed",
    "is_",
    "is_in",
    "is_not",
    "is_not_in",
    "items",
    "listed",
    "matched",
    "new_list",
    "not_",
    "or_",
    "or_test",
    "result",
    "whether_none",
    "while_",
]
