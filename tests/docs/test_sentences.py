"""No page has a sentence that is too long to be understood at once."""

import runpy

import pytest
from pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "_site" / "sentences.py"))
LONGEST = SCRIPT["longest"]()


def test_sentences_of_text_lists_and_tables_count_and_code_is_a_word() -> None:
    text = "# Head\n\nOne two. `a.b c` is *three*\nwords.\n\n- An [item](x.md)! `it` ends.\n\n| a cell | b |\n"
    text += "\n```sh\nno\n```\n"
    wanted = ["Head", "One two.", "⟨a.b c⟩ is *three* words.", "An item!", "⟨it⟩ ends.", "a cell", "b"]
    assert [sentence.strip() for sentence in SCRIPT["sentences"](text)] == wanted


@pytest.mark.parametrize("page", SCRIPT["pages"](), ids=lambda page: page.name)
def test_no_sentence_of_a_page_is_too_long(page: object) -> None:
    of_page = [each for each in LONGEST if str(ROOT / each.page) == str(page)]
    assert of_page[0].words <= SCRIPT["MOST"], of_page[0]
