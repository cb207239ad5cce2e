"""The report in real Chromium: moved, read, filtered, printed, and without scripts."""

import base64
import json
import shlex

import hostile_runs
import numpy as np
import pytest
from chromium import Browser
from finished_runs import finished_run
from launching import launch, launched

from cloc_jax.cli import command_line, decide, runs
from cloc_jax.report import html_page
from cloc_jax.runtime.errors import printable
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics, predictions
from cloc_jax.scoring.results import read_results

DECIDING = "#deciding"
COMMAND = f"{DECIDING} .copy code"


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.quit()


def make_run(path, **options):
    """The path of a finished run with its report."""
    folder = finished_run(path, **options)
    html_page.write_report(folder)
    return folder.path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("fine") / "a run")


@pytest.fixture(scope="module")
def coarse(tmp_path_factory):
    """Probabilities in twentieths: many are equal, and so are expected costs."""
    path = tmp_path_factory.mktemp("coarse") / "run"
    return make_run(path, is_coarse=True, critical=("mild|clear",))


@pytest.fixture
def page(browser, run):
    browser.open(run / html_page.NAME)
    return browser


def control(mode, place, what):
    return f"[data-mode={mode}] .control:nth-of-type({place + 1}) {what}"


def matrix(browser):
    cells = browser.run(
        "return [...document.querySelectorAll('#deciding .matrix td')]"
        ".map((cell) => Number(cell.firstChild.data))"
    )
    side = int(len(cells) ** 0.5)
    return np.array(cells).reshape(side, side)


def shown(browser):
    """The scores on the page by title, before the decision and after it."""
    rows = browser.run(
        "return [...document.querySelectorAll('#deciding .scores tbody tr')].map((row)"
        " => [row.querySelector('th').textContent,"
        " ...[...row.querySelectorAll('b')].map((cell) => cell.textContent)])"
    )
    return {title: cells for title, *cells in rows}


def printed(out):
    """The same of what `decide` prints: what stands before the brackets."""
    found = {}
    for line in out.splitlines():
        if "(" in line and line.rstrip().endswith(")"):
            first, second, _ = line.split(")")
            title, value = first.split("(")[0].rsplit(None, 1)
            found[title] = [value, second.split("(")[0].strip()]
    return found


def kept(browser, capsys):
    """Runs the page's command, and compares all that both say."""
    words = shlex.split(browser.one(COMMAND).text)
    assert words[:3] == ["python", "launch.py", "decide"]
    given = command_line.read_words(runs.decide, words[3:])
    folder = RunFolder(given["run"])
    report = folder.path / html_page.NAME
    aside = report.rename(report.with_suffix(".aside"))  # not to write it each time
    capsys.readouterr()
    decision = decide.decide(folder, given["asked"])
    aside.rename(report)
    folder.decision.unlink()
    said, on_page = printed(capsys.readouterr().out), shown(browser)
    for title in ("accuracy", "MAE", "QWK"):
        assert on_page[title[0].upper() + title[1:]] == said[title]
    for name in decision.thresholds or decision.costs:
        for kind in ("missed", "false alarms"):
            title = f"{kind} at {name}"
            assert on_page[title[0].upper() + title[1:]] == said[title], title
    test = predictions.read(folder.path, read_results(folder))["test"]
    labels = decision.apply(test.probabilities)
    counts = metrics.confusion_matrix(test.true, labels, len(decision.ranks))
    assert matrix(browser).tolist() == counts.tolist()
    changed = [test.items[i] for i in np.flatnonzero(labels != test.predicted)]
    assert browser.texts(f"{DECIDING} .changed li .name") == changed[:21]
    return decision


SETTINGS = [  # name of a control of the first boundary, and its value
    ("missed", "[type=range]", 0),
    ("missed", "[type=range]", 0.05),
    ("missed", "[name=share]", 12.3),
    ("cost", "[type=range]", 2),
    ("cost", "[type=range]", 11),
    ("missed", "[type=range]", 0.5),
]


@pytest.mark.parametrize("name", ["run", "coarse"])
def test_sliders_give_what_decide_gives(name, browser, request, capsys):
    path = request.getfixturevalue(name)
    browser.open(path / html_page.NAME)
    for mode, what, value in SETTINGS:
        browser.set(control(mode, 0, what), value)
        decision = kept(browser, capsys)
        assert "mild|clear" in (decision.thresholds or decision.costs)
        if what == "[type=range]" and mode == "missed":
            assert decision.max_missed["mild|clear"] == value
    browser.set("[name=guarantee]", True)
    browser.set(control("missed", 0, "[type=range]"), 0.1)
    assert kept(browser, capsys).guarantee


def test_each_boundary_has_its_own_slider(page, capsys):
    page.set(control("missed", 0, "[type=range]"), 0.02)
    page.set(control("missed", 1, "[type=range]"), 0.2)
    decision = kept(page, capsys)
    assert decision.max_missed == {"mild|clear": 0.02, "clear|severe": 0.2}
    page.set(control("missed", 0, "[name=on]"), False)
    decision = kept(page, capsys)
    assert decision.max_missed == {"clear|severe": 0.2}
    page.set(control("missed", 1, "[name=on]"), False)
    assert page.one(f"{DECIDING} .problem").text == "Tick a boundary to decide at."
    assert not page.is_seen(COMMAND)


def test_the_command_works_in_a_shell(page, run, tmp_path):
    page.set(control("cost", 1, "[type=range]"), 9)
    words = shlex.split(page.one(COMMAND).text)
    process = launched(*words[2:], cwd=tmp_path)
    labels = printed(process.stdout)
    assert shown(page)["Missed at clear|severe"] == labels["missed at clear|severe"]
    # The report was written again and starts with the saved decision.
    now = shown(page)
    page.open(run / html_page.NAME)
    assert shown(page) == now and not page.is_seen(COMMAND)
    assert page.one("[name=mode]:checked").get_property("value") == "saved"
    assert page.is_seen("#decide li")  # what the saved decision does, in words
    page.set("[name=mode][value=run]", True)
    assert page.one(COMMAND).text.endswith("--remove")
    process = launch(*shlex.split(page.one(COMMAND).text)[2:], cwd=tmp_path)
    assert process.returncode == 0 and not (run / "decision.json").exists()


def test_the_command_is_copied_by_its_button(page):
    from selenium.webdriver import Keys

    page.set(control("missed", 0, "[type=range]"), 0.1)
    command = page.one(COMMAND).text
    page.one(f"{DECIDING} .copy button").click()
    assert page.one(f"{DECIDING} .copy button").text == "Copied"
    page.one("[name=name]").send_keys(Keys.CONTROL, "v")
    assert page.one("[name=name]").get_property("value") == " ".join(command.split())
    page.set(control("missed", 0, "[type=range]"), 0.2)
    assert page.one(f"{DECIDING} .copy button").text == "Copy"


def test_what_cannot_be_is_said(page):
    for value in (100, ""):
        page.set(control("missed", 0, "[name=share]"), value)
        assert "from 0 and below 100%" in page.one(f"{DECIDING} .problem").text
        assert not page.is_seen(COMMAND)
    page.set("[name=guarantee]", True)
    page.set(control("missed", 0, "[name=share]"), 0.1)
    assert "no less than" in page.one(".problem").text
    page.set(control("missed", 0, "[name=share]"), 10)
    assert not page.is_seen(".problem") and page.is_seen(COMMAND)


def test_by_keyboard_alone(page):
    from selenium.webdriver import Keys

    page.run("document.querySelector('[name=mode][value=missed]').focus()")
    page.keys(Keys.SPACE)
    assert page.run("return document.querySelector('[value=missed]').checked")
    page.keys(Keys.TAB, Keys.TAB)  # past the tick
    focused = "return document.activeElement"
    assert page.run(f"{focused}.type") == "range"
    assert page.run(f"{focused}.getAttribute('aria-label')").endswith("mild|clear")
    before = shown(page)
    page.keys(*[Keys.ARROW_RIGHT] * 10)
    assert page.run(f"{focused}.value") == "0.1" and shown(page) != before
    assert page.run(f"{focused}.getAttribute('aria-valuetext')") == "10 percent"
    assert "--max-missed=0.1" in page.one(COMMAND).text
    # An image opens, the arrows walk, Escape closes, and the focus is where it was.
    page.run("document.querySelector('#image-table tbody button').focus()")
    page.keys(Keys.ENTER)
    names = page.texts("#image-table tbody button.name")
    assert page.one("#enlarged-name").text == names[0]
    page.keys(Keys.ARROW_RIGHT)
    assert page.one("#enlarged-name").text == names[1]
    page.keys(Keys.ESCAPE)
    assert not page.is_seen("#enlarged")
    label = page.run(f"{focused}.getAttribute('aria-label')")
    assert label == f"Enlarge {names[0]}"
    page.run("document.querySelector('th[data-key=name] button').focus()")
    page.keys(Keys.ENTER)
    assert page.run(f"{focused}.parentNode.getAttribute('aria-sort')") == "ascending"
    # Everything that can be used can be told apart by ear.
    unnamed = page.run(
        "return [...document.querySelectorAll('main input, main select, main button')]"
        ".filter((e) => !(e.labels?.length || e.textContent.trim()"
        " || e.getAttribute('aria-label'))).map((e) => e.outerHTML)"
    )
    assert unnamed == []


def test_the_table_filters_and_sorts(page, run):
    test = predictions.read(run, read_results(RunFolder(run)))["test"]

    def names():
        return page.texts("#image-table tbody button.name")

    def count():
        return int(page.one("#image-table .count").text.split()[0])

    off = np.abs(test.true - test.predicted)
    assert count() == (off > 0).sum() and len(names()) == 20
    assert test.items.index(names()[0]) in np.flatnonzero(off == off.max())
    for kind, wanted in (
        ("all", off >= 0),
        ("low", test.predicted < test.true),
        ("high", test.predicted > test.true),
        ("far", off > 1),
        ("right", off == 0),
        ("changed", off < 0),
    ):
        page.set("[name=mistake]", kind)
        assert count() == wanted.sum(), kind
    page.set("[name=mistake]", "all")
    for kind, wanted in (
        ("missed-1", (test.true > 1) & (test.predicted <= 1)),
        ("alarm-1", (test.true <= 1) & (test.predicted > 1)),
        ("crossed-2", (test.true > 2) != (test.predicted > 2)),
    ):
        page.set("[name=boundary]", kind)
        assert count() == wanted.sum(), kind
    page.set("[name=boundary]", "")
    page.set("[name=rank]", "3")
    assert count() == (test.true == 3).sum()
    page.set("[name=rank]", "")
    page.set("[name=least]", "60")
    page.set("[name=most]", "70")
    page.one("th[data-key=confidence] button").click()
    sure = page.texts("#image-table tbody td:nth-child(6)")
    numbers = [float(text.rstrip("%")) for text in sure]
    assert numbers == sorted(numbers, reverse=True) and 60 <= numbers[-1] <= 70
    page.set("[name=least]", "0")
    page.set("[name=most]", "100")
    page.set("[name=name]", "00017")
    assert names() == ["test/00017 & <i>.png"] and count() == 1
    page.one("#image-table [type=reset]").click()
    page.one(".pages [name=after]").click()
    assert "page 2 of" in page.one(".pages").text
    # The decision's changes, from beside the sliders.
    page.set(control("missed", 0, "[type=range]"), 0.01)
    page.run("document.querySelector('#deciding .changed > button').click()")
    assert page.one("[name=mistake]").get_property("value") == "changed"
    said = page.one(f"{DECIDING} .changed p").text
    assert int(said.split()[0]) == count() > 0
    assert all("was" in text for text in page.texts("#image-table td:nth-child(4)"))


def test_thumbnails_enlarge(page):
    image = page.one("#image-table tbody img")
    assert image.get_attribute("src").startswith("data:image/jpeg;base64,")
    assert image.get_property("naturalWidth") == 32 and image.size["width"] == 56
    image.click()
    large = page.one("#enlarged img")
    assert large.size["width"] > 300
    assert len(page.all("#enlarged table tr")) == 4  # a probability for each rank
    page.one("#enlarged .close").click()
    assert not page.is_seen("#enlarged")


def test_plots_say_values_on_hover_and_by_keys(page, run):
    from selenium.webdriver import ActionChains, Keys

    plot = page.one("#made .plot")
    page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    over = page.one("#made .plot .u-over")
    assert page.texts("#made .plot .u-value")[:2] == ["–", "–"]
    ActionChains(page.driver).move_to_element_with_offset(
        over, -over.size["width"] // 2 + 2, 0
    ).perform()
    assert page.texts("#made .plot .u-value")[:2] == ["1", "2.000"]
    page.run("arguments[0].focus()", plot)
    page.keys(Keys.ARROW_RIGHT)
    assert page.texts("#made .plot .u-value")[:2] == ["2", "1.000"]
    assert page.texts("#made .plot .unseen")[0] == "Epoch 2, training loss 1.000"
    titles = page.texts(".u-title")
    assert {"Loss", "Accuracy", "Margins", "At mild|clear"} <= set(titles)


def test_nothing_is_loaded_and_nothing_goes_wrong(browser, run):
    browser.driver.get_log("performance")
    browser.driver.get_log("browser")
    browser.open(run / html_page.NAME)
    browser.set(control("missed", 0, "[type=range]"), 0.1)
    asked = [
        message["params"]["request"]["url"]
        for entry in browser.driver.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    ]
    page = (run / html_page.NAME).resolve().as_uri()
    assert asked and {url.split("#")[0] for url in asked if url[:5] != "data:"} == {
        page
    }
    assert browser.driver.get_log("browser") == []
    # Scripts other than the page's own do not run, and nothing may be fetched.
    assert browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
        "document.body.append(s); return window.hit"
    ) is None  # fmt: skip


def test_names_are_nothing_but_text(browser, tmp_path):
    """Whatever they hold, the page has the same elements, and says them as they are."""
    found = {}
    for change in (hostile_runs.tame, str):
        browser.driver.get_log("browser")
        browser.open(
            hostile_runs.hostile_run(tmp_path / change.__name__, change=change)
        )
        browser.set(control("missed", 0, "[type=range]"), 0.3)
        browser.set("[name=mistake]", "all")
        browser.one("#image-table tbody button.name").click()
        found[change] = browser.run(
            "return [...document.querySelectorAll('*')].map((e) =>"
            " [e.tagName, ...e.getAttributeNames()].join(' '))"
        )
        assert browser.run("return window.hit") is None
        assert browser.driver.get_log("browser") == []
        data = json.loads(browser.one("#data").get_property("textContent"))
        said = browser.texts("[name=rank] option")[1:]
        assert said == [" ".join(printable(r).split()) for r in data["ranks"]]
        assert len(said) == 3 and data["images"]["names"]
    assert found[str] == found[hostile_runs.tame]


def test_without_scripts(browser, run):
    browser.open(run / html_page.NAME, has_scripts=False)
    for selector in (DECIDING, "#image-table", ".plots", "#enlarged"):
        assert not browser.is_seen(selector), selector
    for selector in (
        "#images noscript",
        "#images .nearest img",
        "#decide noscript",
        "#made noscript",
    ):
        assert browser.is_seen(selector), selector
    browser.open(run / html_page.NAME)
    assert browser.is_seen(DECIDING)


def test_printed(page, tmp_path):
    page.set(control("missed", 0, "[type=range]"), 0.1)
    page.show_as("print")
    for selector in (f"{DECIDING} form", ".filters", "nav", ".pages"):
        assert not page.is_seen(selector), selector
    for selector in (
        "#image-table table",
        f"{DECIDING} .scores",
        ".matrix td",
        ".plot",
    ):
        assert page.is_seen(selector), selector
    assert page.is_seen(COMMAND)
    pdf = base64.b64decode(page.cdp("Page.printToPDF", printBackground=True)["data"])
    assert pdf[:5] == b"%PDF-" and 2 <= pdf.count(b"/Type /Page\n") <= 20


def test_a_run_without_thumbnails_says_so(browser, tmp_path):
    old = make_run(tmp_path / "old", shown=0, splits=("val", "test"))
    browser.open(old / html_page.NAME)
    assert f"evaluate --run={old}" in browser.one("#images .missing").text
    assert browser.texts("#image-table tbody .thumbnail")[0] == "no picture"
    assert not browser.all("[name=guarantee]")
    browser.set(control("missed", 0, "[type=range]"), 0.1)
    assert browser.is_seen(COMMAND)


def test_many_ranks_are_drawn(browser, tmp_path):
    ranks = [str(age) for age in range(20)]
    run = make_run(tmp_path / "run", ranks=ranks, critical=())
    browser.open(run / html_page.NAME)
    assert len(browser.all("[data-mode=missed] .control")) == 3  # the most crossed
    assert browser.is_seen(f"{DECIDING} .matrix canvas")
    before = browser.run("return document.querySelector('.matrix canvas').toDataURL()")
    browser.set(control("missed", 0, "[type=range]"), 0)
    assert (
        browser.run("return document.querySelector('.matrix canvas').toDataURL()")
        != before
    )
