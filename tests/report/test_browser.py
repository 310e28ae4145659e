"""The page in a real browser: sorting, theme, flows, heat map, a phone's width."""

from __future__ import annotations

import shutil
import warnings

import pytest

from preceptor.report import write_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which("chromedriver"), reason="needs chromium and chromedriver"),
]


@pytest.fixture
def browser(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
                     "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                     f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,900"):  # fmt: skip
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, pipeline_folder, task):
    # Sample predictions need trained weights; thumbnails come with the ranking.
    from preceptor.report.page import render
    from preceptor.report.samples import thumbnails
    from preceptor.report.story import read_story

    story = read_story(pipeline_folder)
    story = type(story)(**{**story.__dict__, "thumbnails": thumbnails(task)})
    file = pipeline_folder / "report.html"
    file.write_text(render(story))
    browser.get(file.as_uri())
    return browser


def _names(browser):
    return [
        cell.text.split("\n")[0] for cell in browser.find_elements("css selector", "table.sortable tbody th")
    ]


def test_headings_sort_the_table_both_ways(page):
    assert _names(page) == ["letters", "greek", "<broken>"]
    heading = page.find_element("xpath", "//th/button[text()='logme']")
    heading.click()
    assert _names(page)[:2] == ["greek", "letters"]
    heading.click()
    assert _names(page)[-2:] == ["letters", "greek"]
    assert heading.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"


def test_the_button_turns_the_theme(page):
    def paper():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = paper()
    page.find_element("id", "theme").click()
    turned = paper()
    assert turned != before
    page.find_element("id", "theme").click()
    assert paper() == before


def test_a_flow_says_what_it_is_to_pointer_and_keyboard(page):
    flow = page.find_element("css selector", ".flow[data-from='O'][data-to='0']")
    says = page.find_element("css selector", ".correspondence .says")
    page.execute_script("arguments[0].dispatchEvent(new MouseEvent('mouseenter'))", flow)
    assert says.text.startswith("O → 0: ")
    assert "on" in flow.get_attribute("class")
    page.execute_script("arguments[0].dispatchEvent(new MouseEvent('mouseleave'))", flow)
    other = page.find_element("css selector", ".flow[data-from='S'][data-to='5']")
    page.execute_script("arguments[0].focus()", other)
    assert says.text.startswith("S → 5: ")


def test_the_heat_map_names_the_cell_under_the_pointer(page):
    cell = page.find_element("css selector", ".correspondence .heat")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page).move_to_element(cell).perform()
    tip = page.find_element("id", "tip")
    assert tip.is_displayed()
    assert " → " in tip.text


def test_on_a_phone_nothing_sticks_out(page):
    page.set_window_size(500, 900)  # chromium's smallest window; the page itself is asked for 375 px
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True},
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= 375


def test_the_page_loads_without_errors_and_without_network(page):
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_text_has_contrast_in_both_themes(page):
    """WCAG AA: 4.5 to 1 for every colour of text against the paper and the panels."""
    script = """
    const lum = hex => { const c = [1, 3, 5].map(i => parseInt(hex.substr(i, 2), 16) / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]; };
    const style = getComputedStyle(document.documentElement), get = n => style.getPropertyValue(n).trim();
    const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    return ['--ink', '--soft', '--accent', '--gain', '--loss'].flatMap(
        n => ['--paper', '--panel'].map(b => [n + ' on ' + b, ratio(get(n), get(b))]));
    """
    for _ in range(2):
        weak = [entry for entry in page.execute_script(script) if entry[1] < 4.5]
        assert weak == []
        page.find_element("id", "theme").click()


def test_every_picture_has_a_description(page):
    bare = page.execute_script(
        "return [...document.querySelectorAll('img:not([alt]), svg:not([aria-label])')]"
        ".map(element => element.outerHTML.slice(0, 80))"
    )
    assert bare == []


def test_write_report_opens_too(browser, ranking, tmp_path):
    browser.get(write_report(ranking, tmp_path / "r.html").as_uri())
    assert browser.title == "Teachers for digits"
