"""Scenarios as HTML in notebooks."""

from tiny_worlds import raw

import vflsim
from vflsim.scenario.document import Document


def test_a_notebook_shows_protocols_and_text_and_no_name_becomes_part_of_the_page() -> None:
    protocols = {"wait": {"kind": "synchronous"}, "first": {"kind": "t_synchronous", "t": 2}}
    scenario = vflsim.load(raw(protocols, name="mine", constants={"x": 2}, seeds=[0, 1]))
    page = scenario._repr_html_()
    assert "<td>first</td><td>t_synchronous</td><td>{t: 2}</td>" in page
    assert "<td>wait</td><td>synchronous</td><td>—</td>" in page
    assert f"{scenario.clients} clients; 2 protocols × 2 seeds = 4 runs." in page
    text = page.partition("<pre>")[2].partition("</pre>")[0]
    assert vflsim.load(text) == scenario  # no character of it needs escaping
    file = {"file": "<img src=x>.csv", "label": "y"}
    scenario = vflsim.load(raw(protocols, name="mine", seeds=[0]))
    scenario._document = Document({"name": "<b>", "data": file, "protocols": {"<i>": {"kind": "synchronous"}}})
    shown = scenario._repr_html_()
    assert "<img" not in shown
    assert "<b>&lt;b&gt;</b>" in shown
    assert "1 protocols × 1 seed = 1 runs" in shown
