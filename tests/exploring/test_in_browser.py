"""The page in headless Chromium: every control, figures equal to those of ``vflsim analyze``, files, a study."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

import vflsim
from vflsim.exploring.base import Base, turned
from vflsim.exploring.server import controls, served
from vflsim.reporting.serving import LocalServer
from vflsim.scenario.load import load

pytestmark = pytest.mark.slow

WAIT = "(async () => {{ for (let k = 0; k < 1200; k++) {{ if ({}) return true; await new Promise((ok) => setTimeout(ok, 50)); }} return false; }})()"  # noqa: E501
MOVE = """(async () => {{
  const [box] = document.querySelectorAll('[data-knob="{knob}"]'), one = box.querySelector('{what}');
  {act};
  for (let k = 0; k < 1200 && !exploring.answered(); k++) await new Promise((ok) => setTimeout(ok, 20));
  return exploring.answered();
}})()"""


def wait(tab: Browser, condition: str) -> None:
    assert tab.value(WAIT.format(condition)), condition


def slide(tab: Browser, knob: str, place: float) -> None:
    """Move a slider, and wait for the answer."""
    act = f"one.value = {place}; one.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    assert tab.value(MOVE.format(knob=knob, what="input[type=range]", act=act))


def write(tab: Browser, knob: str, value: str) -> None:
    """Type a number into a knob's box, and wait for the answer."""
    act = f"one.focus(); one.value = '{value}'; one.dispatchEvent(new Event('input', {{ bubbles: true }})); one.blur()"
    assert tab.value(MOVE.format(knob=knob, what="input[type=number]", act=act))


def choose(tab: Browser, knob: str, word: str) -> None:
    act = f"one.value = '{word}'; one.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    assert tab.value(MOVE.format(knob=knob, what="select", act=act))


def tick(tab: Browser, knob: str) -> None:
    assert tab.value(MOVE.format(knob=knob, what="input[type=checkbox]", act="one.click()"))


def said(tab: Browser) -> dict[str, Any]:
    """The scenario that the page shows."""
    raw: dict[str, Any] = load(tab.value("document.getElementById('yaml').textContent")).document.raw
    return raw


def inked(tab: Browser, where: str) -> bool:
    """Whether something is drawn on every canvas there."""
    found: bool = tab.value(f"""(() => {{ const all = [...document.querySelectorAll('{where} canvas')];
        return all.length > 0 && all.every((canvas) =>
        canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)); }})()""")
    return found


@pytest.fixture
def page(tab: Browser, serving: tuple[LocalServer, str]) -> Iterator[Browser]:
    """The page of the template, freshly loaded; at the end, nothing has been complained of, and nobody else asked."""
    server, address = serving
    tab.open(address)
    wait(tab, "exploring.answered() && exploring.shown.answer")
    yield tab
    assert tab.complaints == []
    assert all(each.startswith((f"http://127.0.0.1:{server.port}/", "data:")) for each in tab.requests)


def test_all_figures_are_drawn(page: Browser) -> None:
    wait(page, "exploring.idle()")
    for where in ("#rounds", "#density", "#survival", "#best", "#waits", "#timeline"):
        assert inked(page, where), where
    assert page.value("document.querySelectorAll('#waits canvas').length") == 4
    assert page.value("document.querySelectorAll('#best canvas').length") == 2
    assert page.value("document.querySelector('#best').textContent").count("★ best") == 2
    assert page.value("document.querySelectorAll('.is-best').length") == 1
    ids = page.value("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


def test_the_table_has_the_numbers_of_vflsim_analyze_and_of_the_simulation(page: Browser, template: Base) -> None:
    slide(page, "delay.mean", 330)
    wait(page, "exploring.idle()")
    raw = said(page)
    assert raw["timing"]["clients"][1]["upload_delay"]["mean"] != "2 s"
    frame = vflsim.analyze(raw).frame
    rounds = frame[frame["quantity"] == "round duration"].set_index("protocol")
    cells = page.value("""Object.fromEntries([...document.querySelectorAll('#table tbody tr')].map((row) =>
        [row.dataset.protocol, [...row.cells].map((cell) => [cell.dataset.value, cell.dataset.upper])]))""")
    assert [*cells] == [*template.raw["protocols"]]
    for name, row in cells.items():
        if rounds.loc[name, "known"] == "simulated":  # the page has rounds of its own beside the reason
            assert row[2] == [None, None]
        else:
            assert (float(row[2][0]), float(row[2][1])) == (rounds.loc[name, "mean"], rounds.loc[name, "mean_upper"])
        assert float(row[1][0]) == page.value(
            f"exploring.shown.answer.protocols.find((p) => p.name === '{name}').step_s"
        )
    shown = page.value("document.getElementById('analyzed').textContent")
    (by_k, _) = vflsim.analyze(raw, protocols=["coded"]).choices("coded")
    assert by_k.notes[0] in shown
    assert all(str(cell) in shown for row in by_k.rows for cell in row)


def test_every_slider_and_box_changes_the_scenario(page: Browser, template: Base) -> None:
    write(page, "clients", "12")
    write(page, "stragglers", "3")
    write(page, "t", "9")
    write(page, "K", "2")
    write(page, "T", "2")
    write(page, "batch", "128")
    write(page, "bandwidth", "250")
    write(page, "latency", "7.5")
    write(page, "delay.mean", "0.25")
    moved = {"clients": 12, "stragglers": 3, "t": 9, "K": 2, "T": 2, "batch": 128, "bandwidth": "250 Mbps"}
    moved |= {"latency": "7.5 ms", "delay": {"kind": "exponential", "mean": "0.25 s"}}
    assert load(said(page)) == load(turned(template, {**template.begin, **moved}))
    for knob in controls()["numbers"]:
        before, typed = said(page), page.value(f"document.querySelector('#knob-{knob}').value")
        place = page.value(f"Number(document.querySelector('[data-knob=\"{knob}\"] input[type=range]').value)")
        slide(page, knob, place + 1 if knob in ("K", "T", "batch") else place - 1)
        wrong = page.value(f"document.querySelector('[data-knob=\"{knob}\"]').classList.contains('is-wrong')")
        assert said(page) != before or wrong, knob
        write(page, knob, typed)
    assert load(said(page)) == load(turned(template, {**template.begin, **moved}))
    tick(page, "bandwidth")
    assert "up" not in said(page)["timing"]["server"]["link"]
    tick(page, "bandwidth")
    assert said(page)["timing"]["server"]["link"]["up"] == "250 Mbps"
    choose(page, "network", "fifo")
    assert said(page)["timing"]["network"] == "fifo"
    assert "simulated event by event" in page.value("document.getElementById('notes').textContent")


@pytest.mark.parametrize("kind", [*controls()["kinds"]])
def test_every_kind_of_delay_has_sliders_for_its_parameters(page: Browser, kind: str) -> None:
    choose(page, "delay", kind)
    parameters = [*controls()["kinds"][kind]]
    shown = page.value(
        "[...document.querySelectorAll('[data-knob^=\"delay.\"]')].map((box) => box.dataset.knob.slice(6))"
    )
    assert shown == parameters
    assert said(page)["timing"]["clients"][-1]["upload_delay"]["kind"] == kind
    for parameter in parameters:
        before = said(page)
        place = page.value(
            f"Number(document.querySelector('[data-knob=\"delay.{parameter}\"] input[type=range]').value)"
        )
        slide(page, f"delay.{parameter}", place + 3)
        assert said(page) != before
    assert inked(page, "#density")
    assert page.value("document.querySelectorAll('.is-wrong').length") == 0


def test_a_wrong_position_is_told_beside_its_control_and_the_figures_stay(page: Browser) -> None:
    before = said(page)
    write(page, "K", "5")
    told = page.value("document.querySelector('[data-knob=\"K\"] .problem').textContent")
    assert "and there are 8 clients" in told
    assert said(page) == before
    assert page.value("document.querySelector('main section').classList.contains('stale')")
    write(page, "K", "2")
    assert page.value("document.querySelectorAll('.knob .problem').length") == 0
    write(page, "clients", "8.5")
    assert "8.5" in page.value("document.querySelector('[data-knob=\"clients\"] .problem').textContent")
    write(page, "clients", "8")
    assert not page.value("document.querySelector('main section').classList.contains('stale')")


def test_fewer_clients_take_sliders_that_depend_on_them_along(page: Browser) -> None:
    write(page, "clients", "4")
    assert page.value("document.querySelector('#knob-t').value") == "4"
    write(page, "clients", "3")
    assert page.value("document.querySelector('#knob-t').value") == "3"
    assert said(page)["protocols"]["t-sync"]["t"] == 3


def test_it_works_with_the_keyboard_alone(page: Browser) -> None:
    page.value("document.querySelector('[data-knob=\"clients\"] input[type=range]').focus()")
    page.key("ArrowRight", 39)
    wait(page, "exploring.answered() && document.getElementById('knob-clients').value === '9'")
    assert said(page)["partition"]["clients"] == 9
    order = []
    for _ in range(9):
        page.key("Tab", 9)
        order.append(page.value("document.activeElement.closest('.knob')?.dataset.knob ?? document.activeElement.id"))
    assert order[:4] == ["clients", "stragglers", "stragglers", "delay"]
    assert "bandwidth" in order
    outlined = page.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outlined != "none"


def test_names_of_the_legend_hide_their_curves(page: Browser) -> None:
    page.value("document.querySelector('#keys button').click()")
    assert page.value("document.querySelector('#keys button').getAttribute('aria-pressed')") == "false"
    page.value("document.querySelector('#keys button').click()")
    page.value("document.getElementById('logarithmic').click()")
    assert not page.value("document.getElementById('logarithmic').checked")
    assert inked(page, "#rounds")


def test_the_timeline_of_another_protocol_is_shown(page: Browser) -> None:
    page.value("document.querySelector('#whose input[value=\"coded\"]').click()")
    wait(
        page,
        "exploring.answered() && document.getElementById('timeline-told').textContent.startsWith('5 rounds of coded')",
    )
    assert inked(page, "#timeline")


def test_yaml_is_copied_and_saved_and_never_overwritten_unasked(page: Browser, place: Path) -> None:
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    write(page, "t", "5")
    page.value("document.getElementById('copy').click()")
    wait(page, "document.getElementById('said').textContent === 'Copied.'")
    assert page.value("navigator.clipboard.readText()") == page.value("document.getElementById('yaml').textContent")
    page.value("document.getElementById('name').value = 'kept'; document.getElementById('save').click()")
    wait(page, "document.getElementById('said').textContent.startsWith('Saved as kept.yaml')")
    assert load(place / "kept.yaml").protocols["t-sync"].protocol.t == 5
    write(page, "t", "6")
    page.value("document.getElementById('save').click()")
    wait(page, "!document.getElementById('replace').hidden")
    assert "this file exists" in page.value("document.getElementById('said').textContent")
    assert load(place / "kept.yaml").protocols["t-sync"].protocol.t == 5
    page.value("document.getElementById('replace').click()")
    wait(page, "document.getElementById('replace').hidden")
    assert load(place / "kept.yaml").protocols["t-sync"].protocol.t == 6


def test_a_study_is_run_and_its_report_linked(page: Browser, serving: tuple[LocalServer, str], place: Path) -> None:
    page.value("document.getElementById('name').value = 'ran'; document.getElementById('timing-only').click()")
    page.value("document.getElementById('run').click()")
    wait(page, "document.getElementById('study-state').textContent.includes('results/ran-timing: running')")
    wait(page, "document.querySelector('#study-state a')")
    assert page.value("document.getElementById('study-state').textContent").startswith("results/ran-timing: finished")
    address = page.value("document.querySelector('#study-state a').href")
    assert (place / "results" / "ran-timing" / "report.html").is_file()
    assert vflsim.open_results(place / "results" / "ran-timing").protocols == ("wait", "t-sync", "async", "coded")
    assert page.complaints == []
    page.open(address)
    assert page.value("document.querySelector('h1').textContent").startswith("ran")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 700, 1280])
def test_nothing_is_wider_than_the_page(tab: Browser, serving: tuple[LocalServer, str], width: int, dark: bool) -> None:
    tab.open(serving[1], width=width, dark=dark)
    wait(tab, "exploring.idle()")
    assert tab.value("document.documentElement.scrollWidth") == width
    beyond = """[...document.querySelectorAll('main *, .controls *')].filter((each) =>
        !each.closest('.wide, pre, .uplot') && each.getBoundingClientRect().right > innerWidth + 1)
        .map((each) => each.outerHTML.slice(0, 80))"""
    assert tab.value(beyond) == []
    ground = tab.value("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(27, 27, 27)" if dark else "rgb(255, 255, 255)")
    assert tab.complaints == []


def test_a_scenario_that_no_knob_holds_says_so_and_its_texts_stay_texts(
    tab: Browser, tmp_path: Path, template: Base
) -> None:
    evil = "<img src=x onerror=alert(1)>"
    raw = {
        **template.raw,
        "metrics": {"f1": {"kind": "macro_f1"}},
        "codec": {"kind": "by_direction", "down": "float16"},
    }
    raw["timing"] = {**raw["timing"], "clients": [*raw["timing"]["clients"], {"select": 1, "upload_delay": "1 s"}]}
    file = tmp_path / f"{evil.replace('/', '')}.json"
    file.write_text(json.dumps(raw))
    with served(file, 0, tmp_path) as (server, address):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab.open(address)
        wait(tab, "exploring.answered() && exploring.shown.answer")
        assert tab.value("document.querySelectorAll('img').length") == 0
        assert evil in tab.value("document.querySelector('.lead').textContent")
        kept = tab.value("document.querySelector('.kept').textContent")
        assert "delay: the upload delays of clients differ from each other." in kept
        assert "codec: {kind: by_direction, down: float16}" in kept
        assert tab.value("document.querySelector('#knob-delay').value") == "as in the scenario"
        assert said(tab) == raw
        slide(tab, "stragglers", 2)
        assert len(said(tab)["timing"]["clients"]) == 2
        assert "−timing.clients.2.upload_delay" in tab.value("document.getElementById('changed').textContent")
        tab.value("document.querySelector('[data-knob=\"delay\"] .unset button').click()")
        wait(tab, "exploring.answered()")
        assert said(tab) == raw
        assert tab.complaints == []
        server.shutdown()
