"""The report in headless Chromium: it renders, complains of nothing, asks for nothing, and can be read off."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser

pytestmark = pytest.mark.slow


@pytest.fixture
def page(tab: Browser, toy_page: Path) -> Browser:
    tab.open(toy_page.as_uri())
    return tab


def test_it_draws_its_charts_without_a_complaint_or_a_request(page: Browser, toy_page: Path) -> None:
    assert page.value("document.querySelectorAll('.curves canvas').length") == 1
    assert page.value("document.querySelectorAll('.timeline canvas').length") == 4
    assert page.value("document.querySelectorAll('figure svg').length") >= 6
    inked = """[...document.querySelectorAll('canvas')].every((canvas) =>
        canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte))"""
    assert page.value(inked)
    assert page.complaints == []
    assert page.requests == [toy_page.as_uri()]


def test_no_two_elements_share_an_id(page: Browser) -> None:
    ids = page.value("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids)) > 10
    missing = """[...document.querySelectorAll('svg use')].map((use) => use.getAttribute('xlink:href').slice(1))
        .filter((id) => !document.getElementById(id))"""
    assert page.value(missing) == []


def test_a_table_is_sorted_by_amounts_whatever_their_units(page: Browser) -> None:
    column = """(() => { const table = document.querySelectorAll('.sortable')[1];
        const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === 'mean round');
        table.tHead.rows[0].cells[at].querySelector('button').click();
        return [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.key)); })()"""
    up, down = page.value(column), page.value(column)
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len({*up}) == 4


def test_dragging_zooms_the_timelines_of_all_protocols(page: Browser) -> None:
    page.value("document.querySelector('.timeline').scrollIntoView()")
    box = page.value("(({x, y, width, height}) => [x, y, width, height])"
                     "(document.querySelector('.timeline .u-over').getBoundingClientRect())")  # fmt: skip
    before = page.value("charts.views().slice(1)")
    x, y, width, height = box
    page.mouse("mouseMoved", x=x + 0.2 * width, y=y + height / 2)
    page.mouse("mousePressed", x=x + 0.2 * width, y=y + height / 2, button="left", clickCount=1)
    page.mouse("mouseMoved", x=x + 0.6 * width, y=y + height / 2, button="left")
    page.mouse("mouseReleased", x=x + 0.6 * width, y=y + height / 2, button="left", clickCount=1)
    after = page.value("charts.views().slice(1)")
    low, high = before[0]
    assert all(view == pytest.approx([low + 0.2 * (high - low), low + 0.6 * (high - low)], rel=0.02) for view in after)
    assert page.complaints == []


def test_pointing_at_the_curves_reads_every_protocol_at_that_time(page: Browser) -> None:
    page.value("document.querySelector('.curves').scrollIntoView()")
    x, y, width, height = page.value("(({x, y, width, height}) => [x, y, width, height])"
                                     "(document.querySelector('.curves .u-over').getBoundingClientRect())")  # fmt: skip
    page.mouse("mouseMoved", x=x + 0.5 * width, y=y + height / 2)
    read = page.value("[...document.querySelectorAll('.curves output')].map((output) => output.textContent)")
    assert read[0].startswith("at ")
    assert len(read) == 5
    assert all(0 <= float(value) <= 1 for value in read[1:])


def test_texts_of_results_never_become_part_of_the_page(tab: Browser, evil_page: Path) -> None:
    tab.open(evil_page.as_uri())
    assert tab.complaints == []
    assert tab.value("document.querySelectorAll('img').length") == 0
    assert tab.value("document.querySelector('h1').textContent") == "</title><script>alert('name')</script>"
    assert tab.value("document.querySelectorAll('script:not([type])').length") == 3
    assert tab.value("document.querySelectorAll('.chart canvas').length") == 2
