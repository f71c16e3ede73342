"""Which exit code counts where several apply."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archec.errors import Exit, gravest

ORDER = (6, 1, 130, 8, 9, 5, 3, 0)


@given(st.sets(st.sampled_from(ORDER)))
def test_the_gravest_code_counts(codes: set[int]) -> None:
    assert gravest(map(Exit, codes)) == next((code for code in ORDER if code in codes), 0)


@given(st.sets(st.sampled_from(list(Exit))), st.sampled_from([2, 4, 7]))
def test_a_command_that_did_nothing_says_so(codes: set[Exit], alone: int) -> None:
    assert gravest({*codes, Exit(alone)}) in (2, 4, 7)
