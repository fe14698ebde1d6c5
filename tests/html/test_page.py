"""The page of `weir report --html` in Debian's Chromium, driven by Playwright: its numbers against the journal, click, brush,
scrubbing, search, themes."""
import re

import pytest
from stage import WORK, Stage, count, event_of, live_of, press, same_size, wait_painted, size

HOSTILE = "</script><script>window.broken=1</script>"


@pytest.fixture(scope="module")
def browser():
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture
def stage(browser):
    """The browser, without windows of the test before."""
    yield browser
    for context in browser.browser.contexts:
        context.close()


def test_no_request_leaves_the_page_and_nothing_goes_wrong(stage):
    case = stage.training()
    page = stage.open(case)
    for key in ["p", "o", "+", "+", "0"]:
        press(page, key)
    page.click("#axis button >> nth=1")
    wait_painted(page)
    others = [url for url in page.requests if url != case.page.as_uri() and not url.startswith(("data:", "blob:"))]
    assert others == [], others
    assert page.troubles == [], page.troubles
    refused = page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.name)")
    assert refused == "TypeError", "the page's policy lets requests out"


@pytest.mark.parametrize("case", ["training", "storm"])
def test_figures_are_those_of_the_journal(stage, case):
    case = getattr(stage, case)()
    page, truth = stage.open(case), case.truth()
    same_size(page.inner_text("#tile-peak b"), truth["peak"], "peak")
    same_size(page.inner_text("#tile-end b"), truth["end"], "live at the end")
    assert count(page.inner_text("#tile-end small")) == truth["end_blocks"]
    assert count(page.inner_text("#tile-events b")) == truth["events"]
    assert count(page.inner_text("#tile-ooms b")) == len(truth["ooms"])


@pytest.mark.parametrize("case", ["training", "storm", "lapped"])
def test_every_moment_is_that_of_the_journal(stage, case):
    case = getattr(stage, case)()
    page = stage.open(case)
    last = int(page.get_attribute("#scrubber", "max"))
    shown = []
    for part in [0.001, 0.13, 0.37, 0.5, 0.81, 0.97, 1]:
        page.evaluate("(to) => { const s = document.getElementById('scrubber'); s.value = to; s.dispatchEvent(new Event('input')); }", int(last * part))
        wait_painted(page)
        note = page.inner_text("#address-note")
        shown.append((event_of(page), live_of(page), count(note.split(" live")[0])))
    truth = case.truth(*[seq for seq, _, _ in shown])
    for (seq, live, blocks), true in zip(shown, truth["at"]):
        same_size(live, true["bytes"], f"{case.page.name}, event {seq}")
        assert blocks == true["blocks"], f"event {seq}: {blocks} blocks, the journal has {true['blocks']}"


@pytest.mark.parametrize("case", ["training", "storm"])
def test_the_peak_is_found_by_its_button_and_its_key(stage, case):
    case = getattr(stage, case)()
    page, truth = stage.open(case), case.truth()
    page.click("#to-peak")
    wait_painted(page)
    assert event_of(page) == truth["peak_seq"]
    press(page, "ArrowLeft", 7)
    assert event_of(page) != truth["peak_seq"]
    press(page, "p")
    assert event_of(page) == truth["peak_seq"]


def test_out_of_memory_is_shown_first_and_marked(stage):
    case = stage.training()
    page, truth = stage.open(case), case.truth()
    assert "out of memory" in page.inner_text("#verdict").lower()
    assert page.eval_on_selector("#verdict", "(card) => card.getBoundingClientRect().top") < 120
    # The page opens at the failure.
    assert event_of(page) == truth["ooms"][0]
    press(page, "p")
    page.click("#to-oom")
    wait_painted(page)
    assert event_of(page) == truth["ooms"][0] and "OUT OF MEMORY" in page.inner_text("#moment")
    red = page.evaluate("""() => {
      const c = document.getElementById('timeline'), d = c.getContext('2d').getImageData(0, 0, c.width, 20).data;
      let red = 0;
      for (let i = 0; i < d.length; i += 4) if (d[i] > 150 && d[i + 1] < 90 && d[i + 2] < 110 && d[i + 3] > 200) red++;
      return red; }""")
    assert red > 150, f"the flag has {red} red pixels"
    calm = stage.open(stage.storm())
    assert calm.is_hidden("#to-oom") and "alarm" not in calm.get_attribute("#verdict", "class")


def test_the_page_opens_where_it_was_asked_to(stage):
    case = stage.case("fails", "fails")
    first, second, third = ((seq, f"{50 + place}.00 GiB") for place, seq in enumerate(case.truth()["ooms"]))
    for options, (event, requested), device in [((), third, "40.00 GiB"), (("oom=1",), first, "40.00 GiB"), (("device=1",), second, "24.00 GiB"),
                                            (("oom=2", "rows=3"), second, "24.00 GiB")]:
        case.write(*options)
        page = stage.open(case)
        assert event_of(page) == event and page.inner_text("#tile-total b") == device, options
        assert requested in page.inner_text("#verdict") and requested in page.inner_text("#moment"), options
        page.click("#grouping [data-value=line]")
        wait_painted(page)
        assert page.locator("#table tbody tr").count() == (3 if "rows=3" in options else 9 + (device == "40.00 GiB")), options


def test_arrow_keys_go_event_by_event(stage):
    page = stage.open(stage.storm())
    page.focus("#scrubber")
    press(page, "Home")
    assert "before the first event" in page.inner_text("#moment")
    press(page, "ArrowRight", 5)
    fifth = event_of(page)
    press(page, "ArrowRight")
    assert event_of(page) == fifth + 1
    press(page, "ArrowLeft", 3)
    assert event_of(page) == fifth - 2
    press(page, "Shift+ArrowRight")
    assert event_of(page) > fifth + 100
    press(page, "End")
    assert page.inner_text("#moment").split(" · ")[1].endswith("(last)")


def test_a_click_on_the_chart_stops_there(stage):
    page = stage.open(stage.storm())
    box = page.locator("#timeline").bounding_box()
    seen = []
    for part in [0.2, 0.5, 0.8]:
        page.mouse.click(box["x"] + box["width"] * part, box["y"] + 150)
        wait_painted(page)
        seen.append(event_of(page))
    assert seen == sorted(seen) and seen[2] - seen[0] > 20000, seen


def window_of(page):
    """Both ends of what is shown, as shares of the run."""
    return page.evaluate("() => [weir.from, weir.to].map((place) => (place - weir.full[0]) / (weir.full[1] - weir.full[0]))")


def close(one, other):
    """Whether two shares are within two pixels of each other."""
    return abs(one - other) < 0.002


def test_a_drag_zooms_in_and_a_double_click_shows_all(stage):
    page = stage.open(stage.storm())
    box = page.locator("#timeline").bounding_box()
    whole = window_of(page)
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 110, steps=4)
    page.mouse.move(box["x"] + 600, box["y"] + 120, steps=4)
    page.mouse.up()
    wait_painted(page)
    a, b = window_of(page)
    assert close(b - a, 200 / (box["width"] - 78)), f"the window is {b - a:.3f} of the run"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    wait_painted(page)
    c, d = window_of(page)
    assert a <= c and d <= b and d - c < (b - a) * 0.7
    # Shift+drag moves without changing the width.
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 700, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    wait_painted(page)
    e, f = window_of(page)
    assert e > c and close(f - e, d - c)
    page.mouse.dblclick(box["x"] + 500, box["y"] + 100)
    wait_painted(page)
    assert window_of(page) == whole


def test_the_overview_brushes_and_its_handles_move(stage):
    page = stage.open(stage.storm())
    box = page.locator("#overview").bounding_box()
    whole = window_of(page)
    y = box["y"] + box["height"] / 2

    def drag(start, to):
        page.mouse.move(box["x"] + start, y)
        page.mouse.down()
        page.mouse.move(box["x"] + to, y, steps=6)
        page.mouse.up()
        wait_painted(page)
        return window_of(page)

    a, b = drag(300, 500)
    assert whole[0] < a < b < whole[1]
    c, d = drag(400, 500)
    assert c > a and close(d - c, b - a), f"the middle moves the window: {a, b} became {c, d}"
    e, f = drag(600, 700)
    assert close(e, c) and f > d, f"the right edge widens it: {c, d} became {e, f}"
    g, h = drag(400, 300)
    assert g < e and close(h, f), f"the left edge widens it: {e, f} became {g, h}"


def test_what_is_painted_is_as_high_as_what_is_live(stage):
    case = stage.storm()
    page = stage.open(case)
    page.click("#axis button >> nth=1")
    page.mouse.move(5, 5)
    wait_painted(page)
    # The coloured pixels of a column, as a share of the plot, against the sums at its highest moment.
    columns = page.evaluate("""() => {
      const c = document.getElementById('timeline'), p = c.getContext('2d'), back = getComputedStyle(document.documentElement).getPropertyValue('--card');
      const W = c.width, H = c.height, found = [];
      for (const part of [0.15, 0.35, 0.55, 0.75, 0.95]) {
        const x = Math.round(64 + (W - 78) * part), d = p.getImageData(x, 0, 1, H).data;
        let top = H;
        for (let y = H - 24; y >= 20; y--) {
          const [r, g, b] = [d[y * 4], d[y * 4 + 1], d[y * 4 + 2]];
          if (d[y * 4 + 3] > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 14) top = y; else if (top < H && top - y > 3) break;
        }
        const span = weir.to - weir.from, width = W - 78;
        const a = weir.momentAt(weir.from + span * (x - 64) / width), b = weir.momentAt(weir.from + span * (x - 63) / width);
        found.push([H - 22 - top, weir.journal.seq[Math.max(0, weir.levels.highest(a, b) - 1)]]);
      }
      return found; }""")
    truth = case.truth(*[int(seq) for _, seq in columns])
    scales = [height / true["bytes"] for (height, _), true in zip(columns, truth["at"])]
    assert max(scales) / min(scales) < 1.04, f"pixels a byte differ: {scales}"


def test_search_finds_rows_and_their_sums(stage):
    case = stage.storm()
    page, truth = stage.open(case), case.truth()
    page.click("#grouping button[data-value=op]")
    page.focus("#scrubber")
    press(page, "End")
    page.fill("#search", "layer2/")
    wait_painted(page)
    rows = page.locator("#table tbody tr")
    names = [rows.nth(n).locator("td").nth(0).inner_text() for n in range(rows.count())]
    wanted = {name: sums for name, sums in truth["ops"].items() if "layer2/" in name}
    assert set(wanted) <= set(names) and all("layer2/" in name for name in names), names
    for n, name in enumerate(names):
        cells = [rows.nth(n).locator("td").nth(c).inner_text() for c in (2, 3)]
        bytes, blocks = truth["ops"].get(name, (0, 0))
        same_size(cells[0], bytes, name)
        assert count(cells[1]) == blocks, name
    page.fill("#search", "MATMUL layer2/")
    wait_painted(page)
    assert rows.count() == 1, "every word must be found, in any case"
    page.fill("#search", "no such thing")
    wait_painted(page)
    assert rows.count() == 0 and page.inner_text("#table-note").startswith("0 of")


def test_the_table_sorts_by_every_column(stage):
    page = stage.open(stage.storm())
    page.click("#grouping button[data-value=op]")
    wait_painted(page)

    def column(n):
        rows = page.locator("#table tbody tr")
        return [rows.nth(row).locator("td").nth(n).inner_text() for row in range(min(20, rows.count()))]

    for name, n, value in [("blocks", 3, count), ("peak", 4, lambda text: size(text)[0]), ("turnover", 7, lambda text: size(text)[0])]:
        page.click(f"#table th[data-column={name}] button")
        wait_painted(page)
        seen = [value(text) for text in column(n)]
        assert seen == sorted(seen, reverse=True) and seen[0] > seen[-1], f"{name}: {seen}"
        page.click(f"#table th[data-column={name}] button")
        wait_painted(page)
        seen = [value(text) for text in column(n)]
        assert seen == sorted(seen), f"{name} the other way: {seen}"
        assert page.get_attribute(f"#table th[data-column={name}]", "aria-sort") == "ascending"


def test_marks_and_regions_are_told_at_the_cursor_and_drawn(stage):
    case = stage.training()
    page = stage.open(case)
    said = page.inner_text("#moment")
    # It fails in the middle of a step.
    assert re.search(r"after “epoch \d+” · in train( ·|$)", said) and HOSTILE not in said, said
    assert "in train" in page.inner_text("#verdict")
    facts = page.evaluate("() => JSON.parse(document.getElementById('facts').textContent).marks")
    inner = next(mark["entry"] for mark in facts if mark["kind"] == "region_begin" and mark["name"] == HOSTILE)
    page.evaluate("(to) => { const s = document.getElementById('scrubber'); s.value = to; s.dispatchEvent(new Event('input')); }", inner + 1)
    wait_painted(page)
    assert f"in train · in {HOSTILE}" in page.inner_text("#moment") and page.troubles == []


def test_lines_open_in_the_editor(stage):
    page = stage.open(stage.training())
    first = page.locator("#verdict dd a").first
    assert re.fullmatch(r"vscode://file/home/me/train\.py:\d+", first.get_attribute("href")) and "train.py:" in first.inner_text()
    page.click("#grouping button[data-value=line]")
    wait_painted(page)
    links = lambda: [link.get_attribute("href") for link in page.locator("#table a.edit:visible").all()]
    assert "vscode://file/home/me/model.py:31" in links() and "vscode://file/home/me/%3Cb%3Elib%3C/b%3E.py:13" in links(), links()
    page.select_option("#editor", "JetBrains")
    wait_painted(page)
    assert first.get_attribute("href").startswith("idea://open?file=/home/me/train.py&line=")
    assert "idea://open?file=/home/me/model.py&line=31" in links() and page.troubles == []


def test_rows_add_up_to_what_is_live(stage):
    case = stage.training()
    page, truth = stage.open(case), case.truth()
    page.focus("#scrubber")
    press(page, "End")
    for grouping in ["op", "line", "class"]:
        page.click(f"#grouping button[data-value={grouping}]")
        wait_painted(page)
        same_size(page.inner_text("#table-note").split(" · ")[1].replace(" at the cursor", ""), truth["end"], grouping)


def test_a_group_that_is_chosen_stands_out(stage):
    page = stage.open(stage.training())
    ink = """() => { const c = document.getElementById('timeline'), d = c.getContext('2d').getImageData(80, 40, c.width - 120, c.height - 80).data;
      let strong = 0; for (let i = 0; i < d.length; i += 4) if (Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 60 && d[i+3] > 200) strong++; return strong; }"""
    before = page.evaluate(ink)
    page.click("#legend li >> nth=1 >> button")
    wait_painted(page)
    assert page.get_attribute("#legend li:nth-child(2) button", "aria-pressed") == "true"
    assert page.evaluate(ink) < before * 0.8
    page.click("#legend li >> nth=1 >> button")
    wait_painted(page)
    assert abs(page.evaluate(ink) - before) < before * 0.02


def test_the_flame_graph_shows_the_peak_and_looks_into_a_frame(stage):
    case = stage.storm()
    page, truth = stage.open(case), case.truth()
    page.click("#flame-of button[data-value=peak]")
    wait_painted(page)
    same_size(page.inner_text("#flame-note").split(" live")[0], truth["peak"], "flame graph of the peak")
    box = page.locator("#flame").bounding_box()
    page.mouse.click(box["x"] + 30, box["y"] + 32 * 2 + 10)
    wait_painted(page)
    note = page.inner_text("#flame-note")
    assert "layers.py" in note and "%" in note, note
    page.mouse.click(box["x"] + 30, box["y"] + 8)
    wait_painted(page)
    assert "live at the peak" in page.inner_text("#flame-note")
    page.focus("#flame")
    press(page, "ArrowDown", 2)
    press(page, "Enter")
    assert "storm.py" in page.inner_text("#flame-note"), page.inner_text("#flame-note")


def test_the_address_space_shows_the_block_under_the_pointer(stage):
    page = stage.open(stage.training())
    press(page, "p")
    page.hover("#address", position={"x": 20, "y": 8})
    page.wait_for_selector("#tip:not([hidden])")
    reported = page.inner_text("#tip")
    assert "0x7f20" in reported and "GiB" in reported or "MiB" in reported, reported
    page.wait_for_function("() => document.getElementById('address-holes').textContent.includes('gap')")


def test_a_block_has_its_tensor_and_a_stack_without_library_frames(stage):
    page = stage.open(stage.training())
    press(page, "p")
    page.hover("#address", position={"x": 20, "y": 8})
    page.wait_for_selector("#tip:not([hidden])")
    reported = page.inner_text("#tip")
    assert "float32 [3,3,64,256]" in reported, reported
    stack = page.locator("#tip .tip-stack li").all_inner_texts()
    assert stack == ["train.py:88 in main", "… 3 frames in Python's library, tensorflow, keras", "model.py:31 in build", "… 1 frame in keras"], stack


def test_a_page_without_a_failure_opens_at_the_peak(stage):
    # Long enough for the wave to fall again.
    case = stage.case("fallen", "storm", "170000")
    assert case.truth()["end"] < 0.9 * case.truth()["peak"]
    page = stage.open(case)
    assert event_of(page) == case.truth()["peak_seq"]
    same_size(live_of(page), case.truth()["peak"], "where it opens")
    # The verdict speaks of the same moment.
    live = page.locator(".device-key li", has_text="live in this job").locator("b").inner_text()
    same_size(live, case.truth()["peak"], "the verdict")


def test_commands_can_be_copied_and_selected(stage):
    page = stage.open(stage.case("fails", "fails"), permissions=["clipboard-read", "clipboard-write"])
    command = page.locator(".tries .command code").first
    text = command.inner_text()
    assert text in page.evaluate("() => JSON.parse(document.getElementById('facts').textContent).verdict.tries.map((one) => one.command)")
    page.click(".tries .command button >> nth=0")
    page.wait_for_function("() => document.querySelector('.tries .command button').textContent !== 'Copy'")
    assert page.evaluate("() => navigator.clipboard.readText()") == text
    command.click()
    assert page.evaluate("() => getSelection().toString()") == text
    # Without access to the clipboard the command is selected, and what the browser then allows is done.
    page.evaluate("() => { getSelection().removeAllRanges(); Object.defineProperty(navigator, 'clipboard', { value: undefined }); }")
    page.click(".tries .command button >> nth=0")
    page.wait_for_function("(text) => getSelection().toString() === text", arg=text)


@pytest.mark.parametrize("width", [1280, 700])
def test_without_javascript_the_verdict_is_text(stage, width):
    case = stage.training()
    with_script = stage.open(case)
    said = with_script.evaluate("() => JSON.parse(document.getElementById('facts').textContent).verdict")
    plain = stage.browser.new_context(viewport={"width": width, "height": 800}, offline=True, java_script_enabled=False).new_page()
    plain.goto(case.page.as_uri())
    text = " ".join(plain.inner_text("body").split())
    assert plain.inner_text("#command") == "train.py --batch 64"
    for wanted in [said["title"], *(line for _, line in said["lines"]), *(one["text"] for one in said["tries"])]:
        assert " ".join(wanted.split()) in text, wanted
    assert said["cause"].lower() in text.lower() and "Who holds it" in text and "history/Identity" in text and "train.py:131" in text, text
    for part in ["#timeline", "#table", "#device", "#theme", "#verdict", "#tiles"]:
        assert not plain.is_visible(part), part
    box = plain.locator(".plain").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width, box
    plain.screenshot(path=str(WORK / f"plain-{width}.png"), full_page=True)
    assert not with_script.is_visible(".plain")


def test_themes_switch_and_follow_the_system(stage):
    case = stage.training()
    back = "() => getComputedStyle(document.body).backgroundColor"
    light, dark = stage.open(case, color_scheme="light"), stage.open(case, color_scheme="dark")
    colours = light.evaluate(back), dark.evaluate(back)
    assert colours[0] != colours[1], "the system's choice is followed"
    light.click("#theme button[data-value=dark]")
    dark.click("#theme button[data-value=light]")
    wait_painted(light)
    assert (light.evaluate(back), dark.evaluate(back)) == (colours[1], colours[0])
    light.click("#theme button[data-value=auto]")
    assert light.evaluate(back) == colours[0]
    light.emulate_media(color_scheme="dark")
    light.wait_for_function(f"(wanted) => ({back})() === wanted", arg=colours[1])


def test_hostile_names_are_shown_and_do_nothing(stage):
    page = stage.open(stage.training())
    page.click("#grouping button[data-value=op]")
    page.fill("#search", "window.broken")
    wait_painted(page)
    rows = page.locator("#table tbody tr")
    names = [rows.nth(n).locator("td").nth(0).inner_text() for n in range(rows.count())]
    assert HOSTILE in names and len(names) == 3, names
    for n in range(3):
        rows.nth(n).hover()
    page.mouse.move(*[page.locator("#flame").bounding_box()[side] + 15 for side in ("x", "y")])
    assert page.evaluate("() => window.broken") is None
    assert page.locator("script").count() == 3, "head, facts and the page's own; the columns are taken out"
    assert page.locator("img").count() == 0 and page.locator("b b").count() == 0
    assert page.troubles == [], page.troubles


def box_of(page, part):
    return page.locator(part).bounding_box()


def test_a_phone_sees_everything_without_sideways_scrolling(stage):
    page = stage.open(stage.training(), width=390, height=844, has_touch=True, is_mobile=True)
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390, f"the page is {wide} pixels wide"
    for part in ["#timeline", "#overview", "#address", "#flame", "#search"]:
        box = page.locator(part).bounding_box()
        assert box["width"] > 150 and box["x"] >= 0 and box["x"] + box["width"] <= 391, (part, box)
    page.tap("#timeline", position={"x": box_of(page, "#timeline")["width"] * 0.4, "y": 100})
    wait_painted(page)
    assert "OUT OF MEMORY" not in page.inner_text("#moment")
    page.screenshot(path=str(WORK / "phone.png"), full_page=True)


@pytest.mark.parametrize("width", [700, 1000])
def test_a_narrow_window_needs_no_sideways_scrolling(stage, width):
    page = stage.open(stage.training(), width=width)
    assert "OUT OF MEMORY" in page.inner_text("#moment")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    for part in ["#command", "#moment", "#scrubber", "#verdict", "#table-note"]:
        box = box_of(page, part)
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, (part, box)


def test_everything_can_be_reached_and_has_a_name(stage):
    page = stage.open(stage.training())
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, input, select, canvas, [role=radiogroup]')]
      .filter((e) => !e.closest('[hidden]') && e.getAttribute('aria-hidden') !== 'true')
      .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML.slice(0, 80))""")
    assert nameless == [], nameless
    page.evaluate("() => document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.id || document.activeElement.closest('[id]')?.id"))
    wanted = {"theme", "grouping", "axis", "zoom-in", "timeline", "overview", "scrubber", "to-peak", "address", "flame", "search", "table"}
    assert wanted <= reached, wanted - reached
    page.focus("#grouping button[aria-checked=true]")
    before = page.inner_text("#grouping button[aria-checked=true]")
    press(page, "ArrowRight")
    assert page.inner_text("#grouping button[aria-checked=true]") != before


def test_the_axis_of_events_shows_the_same_window(stage):
    page = stage.open(stage.storm())
    press(page, "+", 3)
    moments = "() => [weir.momentAt(weir.from), weir.momentAt(weir.to)]"
    a, b = page.evaluate(moments)
    page.click("#axis button[data-value=event]")
    wait_painted(page)
    c, d = page.evaluate(moments)
    assert abs(a - c) <= 2 and abs(b - d) <= 2, (a, b, c, d)
    press(page, "0")
    assert window_of(page)[0] == 0


def test_devices_and_host_memory_are_kept_apart(stage):
    page = stage.open(stage.training())
    page.select_option("#device", "1")
    wait_painted(page)
    assert page.inner_text("#tile-end b") == "512.0 MiB" and page.inner_text("#tile-total b") == "24.00 GiB"
    page.select_option("#device", "63")
    wait_painted(page)
    assert page.inner_text("#tile-end b") == "256.0 MiB"
    page.select_option("#device", "0")
    wait_painted(page)
    same_size(page.inner_text("#tile-end b"), stage.training().truth()["end"], "the first device")


def test_a_run_that_did_nothing_has_a_page(stage):
    page = stage.open(stage.case("empty", "storm", "0"))
    assert page.inner_text("#tile-peak b") == "0" and page.troubles == [], page.troubles
    for key in ["p", "+", "0", "ArrowRight"]:
        press(page, key)
    assert page.troubles == [], page.troubles


def test_roles_are_shown_and_lines_explain_them(stage):
    page = stage.open(stage.training())
    roles = page.locator("#legend button span").all_inner_texts()
    assert {"parameters", "optimizer state", "activations", "gradients", "inputs"} <= set(roles), roles
    said = page.inner_text("#verdict")
    assert "train.py:131" in said and "MiB a step" in said, said
    parts = page.locator(".device-key li b").all_inner_texts()
    assert abs(sum(size(text)[0] for text in parts) - 40 * 2**30) < 0.03 * 2**30, parts


def pid_of(journal):
    """The process of a journal; its name ends with it."""
    return journal.removesuffix(".weir").rpartition("-")[2]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_several_runs_of_a_job_are_side_by_side(stage, script):
    case = stage.ranks()
    zeroth, first, second = map(pid_of, case.journals)
    window = stage.browser.new_context(viewport={"width": 1280, "height": 800}, offline=True, java_script_enabled=script).new_page()
    troubles = []
    window.on("pageerror", lambda error: troubles.append(str(error)))
    window.goto(case.page.as_uri())
    rows = {row.locator("td").nth(0).inner_text().split("\n")[0]: row for row in window.locator("#ranks tbody tr").all()}
    assert set(rows) == {f"pid {pid}" for pid in (zeroth, first, second)}, list(rows)
    # Who ran out first, and what the rest of the page is about.
    said = window.inner_text("#ranks p >> nth=0")
    assert re.match(rf"Pid {first} ran out of memory first; pid {zeroth} \S+ (s|min) after it\.", said), said
    assert "shown below" in rows[f"pid {first}"].inner_text() and "train.py --rank 1" in window.inner_text("#command")
    cells = {pid: rows[f"pid {pid}"].locator("td").all_inner_texts() for pid in (zeroth, first, second)}
    for pid, bytes in ((zeroth, 32 << 30), (first, 20 * ((1 << 30) + (64 << 20))), (second, 32 * ((1 << 30) + (128 << 20)))):
        same_size(cells[pid][2], bytes, f"peak of pid {pid}")
        assert cells[pid][3] == "40.00 GiB", cells[pid]
    assert [cells[pid][4].startswith("out of memory after") for pid in (zeroth, first, second)] == [True, True, False], cells
    assert [cells[pid][5] for pid in (zeroth, first, second)] == ["REQUEST TOO LARGE", "REQUEST TOO LARGE", ""], cells
    assert cells[second][4] == "ended in order" and "train.py:12" in cells[second][6], cells[second]
    # One clock and one scale: the curve of the run with most memory is the highest, that of the one that failed first ends first.
    boxes = {pid: rows[f"pid {pid}"].locator("path.live").evaluate("(path) => { const box = path.getBBox(); return [box.width, box.height]; }")
             for pid in cells}
    assert boxes[first][0] < 0.75 * boxes[zeroth][0] and abs(boxes[second][1] / boxes[zeroth][1] - 36 / 32) < 0.02, boxes
    assert [rows[f"pid {pid}"].locator("path.failed").count() for pid in (zeroth, first, second)] == [1, 1, 0]
    window.screenshot(path=str(WORK / f"ranks-{'script' if script else 'plain'}.png"), full_page=True)
    assert troubles == [], troubles
    assert stage.open(stage.training()).locator("#ranks").count() == 0, "one run has nobody beside it"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("case, whole", [("training", False), ("training", True), ("storm", True)], ids=["training", "training-whole", "storm"])
def test_pictures_are_taken(stage, case, whole, theme):
    path = WORK / f"{case}-{theme}{'-whole' if whole else ''}.png"
    path.unlink(missing_ok=True)
    stage.open(getattr(stage, case)(), color_scheme=theme).screenshot(path=str(path), full_page=whole)
    assert path.stat().st_size > 20_000
