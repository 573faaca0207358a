"""The scripts of the report, in a browser."""

import dataclasses
import os
import shutil

import pytest

from sbert_core.report.report_page import ReportData, render_report
from tests.report_data import EMPTY, HOSTILE, make_data, make_hostile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def open_report(browser, tmp_path):
    """Opens the report from a file; a request, a dialog or a console message fails the test."""
    problems, contexts = [], []

    def open_page(data: ReportData, width: int = 1280, height: int = 800, **options):
        path = tmp_path / "report.html"
        path.write_text(render_report(data), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url == path.as_uri() or problems.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        wait_until_drawn(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def wait_until_drawn(page) -> None:
    """Waits until the page is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def picture(page) -> str:
    wait_until_drawn(page)
    return page.evaluate("document.getElementById('map').toDataURL()")


def find_on_map(page, words: str) -> tuple[float, float]:
    """Moves the pointer over the map until the tooltip contains the words, and leaves it there."""
    place = page.evaluate(
        """(words) => {
            const canvas = document.getElementById("map"), tooltip = document.getElementById("tooltip");
            const box = canvas.getBoundingClientRect();
            for (let clientY = box.top + 8; clientY < box.bottom; clientY += 6) {
                for (let clientX = box.left + 8; clientX < box.right; clientX += 6) {
                    canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, pointerType: "mouse" }));
                    if (!tooltip.hidden && tooltip.textContent.includes(words)) return [clientX, clientY];
                }
            }
        }""",
        words,
    )
    assert place, f"no tooltip contains {words!r}"
    page.mouse.move(1, 1)
    page.mouse.move(*place)
    return tuple(place)


def names(page) -> list[str]:
    return page.locator("tbody[data-cluster] [data-role=name]").all_inner_texts()


def test_shows_every_cluster(open_report):
    page = open_report(make_data())
    assert names(page) == ["name 0", "name 1", "name 2", "name 3", "name 4", "No cluster"]
    assert "5 clusters of 4,990 rows; 7 rows are in no cluster." in page.locator("#clusters .lead").inner_text()
    assert page.locator("#pair-list li").count() == 50
    assert page.title() == "A corpus"


def test_sorts(open_report):
    page = open_report(make_data())
    page.click("[data-sort=cohesion]")
    assert names(page) == ["name 2", "name 4", "name 1", "name 3", "name 0", "No cluster"]
    page.click("[data-sort=cohesion]")
    assert names(page) == ["name 0", "name 3", "name 1", "name 4", "name 2", "No cluster"]
    page.click("[data-sort=name]")
    assert names(page) == ["name 0", "name 1", "name 2", "name 3", "name 4", "No cluster"]
    assert page.locator("th[aria-sort=ascending]").inner_text().strip().startswith("Name")


def test_search_filters_clusters_and_dims_the_map(open_report):
    page = open_report(make_data())
    before = picture(page)
    page.fill("#cluster-search", "EXAMPLE 3")
    assert names(page) == ["name 3"]
    assert "1 matches the search" in page.locator("#clusters .lead").inner_text()
    assert picture(page) != before
    page.fill("#cluster-search", "nowhere")
    assert names(page) == []
    assert page.locator("#cluster-none").is_visible()
    page.keyboard.press("Escape")
    assert len(names(page)) == 6
    assert picture(page) == before


def test_hover_shows_the_text(open_report):
    page = open_report(make_data(n_points=12))
    find_on_map(page, "text of row 3")
    assert page.locator("#tooltip").inner_text().split("\n") == ["name 2", "text of row 3", "r3"]
    page.mouse.move(1, 1)
    assert page.locator("#tooltip").is_hidden()


def test_click_on_a_point_selects_its_cluster(open_report):
    page = open_report(make_data(n_points=12))
    before = picture(page)
    page.mouse.click(*find_on_map(page, "text of row 3"))
    assert page.locator("tbody.chosen").get_attribute("data-cluster") == "2"
    assert page.locator("#selection-name").inner_text() == "name 2"
    assert page.locator("tbody.chosen .details li").all_inner_texts() == ["example 2 a", "example 2 b"]
    page.keyboard.press("Escape")
    assert page.locator("tbody.chosen").count() == 0
    assert page.locator("#selection").is_hidden()
    page.mouse.move(1, 1)
    assert picture(page) == before


def test_click_on_a_row_selects_and_again_clears(open_report):
    page = open_report(make_data())
    before = picture(page)
    page.click("tbody[data-cluster='1'] .c-size")
    assert page.locator("tbody[data-cluster='1'] [data-role=name]").get_attribute("aria-pressed") == "true"
    chosen = picture(page)
    assert chosen != before
    page.click("tbody[data-cluster='1'] .c-near a")
    assert page.locator("tbody.chosen").get_attribute("data-cluster") == "2"
    assert picture(page) != chosen
    page.click("tbody[data-cluster='2'] .c-size")
    assert picture(page) == before


def test_keyboard_can_do_everything(open_report):
    page = open_report(make_data())
    page.focus("tbody[data-cluster='4'] [data-role=name]")
    page.keyboard.press("Enter")
    assert page.locator("tbody.chosen").get_attribute("data-cluster") == "4"
    assert page.evaluate("document.activeElement.textContent") == "name 4"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # collapses its examples
    assert page.locator(".details").count() == 0
    page.keyboard.press("Escape")
    before = picture(page)
    page.focus("#map")
    page.keyboard.press("+")
    assert picture(page) != before
    page.keyboard.press("0")
    assert picture(page) == before


def test_zoom_drag_and_reset(open_report):
    page = open_report(make_data())
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] - 5)
    views = [picture(page)]
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)
    views.append(picture(page))
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 100, steps=4)
    page.mouse.up()
    views.append(picture(page))
    assert len(set(views)) == 3
    assert page.locator("tbody.chosen").count() == 0
    page.click("#reset")
    assert picture(page) == views[0]


def test_marks_are_shown(open_report):
    pair = {"id_a": "a", "id_b": "b", "score": 0.97, "text_a": "port 1", "text_b": "port 2", "numbers_differ": True}
    page = open_report(make_data(pairs=[pair, {**pair, "numbers_differ": False}]))
    assert page.locator("#pair-list .mark").all_inner_texts() == ["numbers differ"]
    assert page.locator("#duplicates .mark").all_inner_texts() == ["numbers differ"]


def test_hostile_texts_show_as_themselves(open_report):
    data = make_hostile()
    page = open_report(data)
    assert page.locator("h1").inner_text() == HOSTILE[1]
    for text, row in zip(HOSTILE, page.locator("#pair-list li").all(), strict=True):
        assert row.locator(".text").first.text_content() == text
    for row in page.locator(".unfold").all():
        row.click()
    assert page.locator(".details li").all_text_contents() == HOSTILE
    find_on_map(page, "<script>alert(1)</script>")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_pairs_can_be_searched_and_continued(open_report):
    page = open_report(make_data())
    page.click("#pair-more")
    assert page.locator("#pair-list li").count() == 100
    page.click("#pair-more")
    assert page.locator("#pair-list li").count() == 120
    assert page.locator("#pair-more").is_hidden()
    page.fill("#pair-search", "right 77")
    assert page.locator("#pair-list li").count() == 1
    page.fill("#pair-search", "nothing like it")
    assert page.locator("#pair-none").is_visible()


def test_many_clusters_and_points_stay_responsive(open_report):
    page = open_report(make_data(n_clusters=2000, n_points=20_000))
    assert len(names(page)) == 50
    page.evaluate("document.getElementById('cluster-panel').scrollTop = 1e6")
    page.locator("tbody[data-cluster='99']").wait_for()
    assert 100 <= len(names(page)) <= 200
    page.fill("#cluster-search", "term1999")
    assert names(page) == ["name 1999"]
    page.fill("#cluster-search", "")
    page.click("tbody[data-cluster='3'] [data-role=name]")
    page.click("tbody[data-cluster='3'] .c-near a")
    assert page.locator("tbody.chosen").get_attribute("data-cluster") == "4"
    page.keyboard.press("Escape")
    times = page.evaluate(
        """async () => {
            const times = [];
            for (let round = 0; round < 9; round++) {
                const start = performance.now();
                document.getElementById("zoom-in").click();
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                times.push(performance.now() - start);
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    assert times[4] < 200  # a few times what it takes without a graphics card on one busy core


def test_a_cluster_beyond_the_rows_shown_is_pinned(open_report):
    data = make_data(n_clusters=200, n_points=201)
    far = [{**cluster, "nearest": 150} for cluster in data.clusters]
    page = open_report(dataclasses.replace(data, clusters=far))
    page.click("tbody[data-cluster='0'] .c-near a")
    assert names(page) == ["name 150", *(f"name {number}" for number in range(50))]
    assert page.locator("tbody.pinned.chosen").count() == 1
    while page.locator("#cluster-more").is_visible():
        page.locator("#cluster-more").dispatch_event("click")
    assert page.locator("tbody.pinned").count() == 0
    assert names(page) == [*(f"name {number}" for number in range(200)), "No cluster"]
    page.keyboard.press("Escape")
    assert page.locator("tbody.chosen").count() == 0
    assert len(names(page)) == 201


@pytest.mark.parametrize("data", [make_data(), make_hostile(), EMPTY], ids=["plain", "hostile", "empty"])
def test_fits_a_phone(open_report, data):
    page = open_report(data, width=390, height=844, device_scale_factor=2, has_touch=True, is_mobile=True)
    for row in page.locator(".unfold").all():
        row.tap()
    assert page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]") == [390, 390]


def test_tap_shows_the_text_and_selects(open_report):
    points = {"x": [0.0], "y": [0.0], "cluster": [1], "id": ["only"], "text": ["the only row"]}
    page = open_report(make_data(points=points), width=390, height=844, has_touch=True, is_mobile=True)
    page.locator("#map").tap()
    assert page.locator("#tooltip").inner_text().split("\n") == ["name 1", "the only row", "only"]
    assert page.locator("#selection-name").inner_text() == "name 1"


def test_light_and_dark(open_report):
    page = open_report(make_data(), color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark, dark_map = page.evaluate(colour), picture(page)
    page.click("#theme")
    assert page.evaluate(colour) != dark
    assert picture(page) != dark_map
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_empty_report_opens(open_report):
    page = open_report(EMPTY)
    assert page.locator("canvas").count() == 0
    assert page.locator(".empty").count() == 6
