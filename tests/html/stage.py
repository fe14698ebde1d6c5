"""What the tests of the page stand on: journals made for them, their pages, and the browser that opens these."""
import json
import pathlib
import sys

from playwright.sync_api import sync_playwright

# Where bench.py and picture.py start, nobody has set the path.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from conftest import RELEASE, ROOT, cargo, chromium, run  # noqa: E402

# Journals, pages and pictures stay here.
WORK = ROOT / "target/html"
JOURNALS = RELEASE / "examples/html_journals"


def output(*command):
    return run(*command, timeout=300).stdout.strip()


class Case:
    """A journal and its page."""

    def __init__(self, name, *make):
        folder = WORK / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.weir*"):
            old.unlink()
        self.journal = output(JOURNALS, make[0], str(folder), *make[1:])
        self.page = WORK / f"{name}.html"
        self.truths = {}
        self.write()

    def write(self, *options):
        output(JOURNALS, "page", self.journal, str(self.page), *options)

    def truth(self, *seqs):
        """What is true of the journal, counted without the page's code."""
        if seqs not in self.truths:
            self.truths[seqs] = json.loads(output(JOURNALS, "truth", self.journal, *map(str, seqs)))
        return self.truths[seqs]


class Stage:
    """One browser for all tests; every test gets a window of its own."""

    def __init__(self):
        cargo("-p", "weir-forensics", "--example", "html_journals")
        WORK.mkdir(parents=True, exist_ok=True)
        self.playwright = sync_playwright().start()
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        self.browser = self.playwright.chromium.launch(executable_path=chromium(), args=arguments)
        self.cases = {}

    def case(self, name, *make):
        if name not in self.cases:
            self.cases[name] = Case(name, *make)
        return self.cases[name]

    def training(self):
        return self.case("training", "training")

    def storm(self):
        return self.case("storm", "storm", "60000")

    def lapped(self):
        """Three times as many events as the ring keeps."""
        return self.case("lapped", "storm", "50000", "16384")

    def ranks(self):
        """Three processes of a job on one page: the second runs out of memory first."""
        if "ranks" not in self.cases:
            zeroth, third = Case("rank-0", "rank", "0"), Case("rank-2", "rank", "2")
            case = self.case("ranks", "rank", "1")
            case.journals = [zeroth.journal, case.journal, third.journal]
            output(JOURNALS, "page", zeroth.journal, str(case.page), *(f"beside={journal}" for journal in case.journals[1:]))
        return self.cases["ranks"]

    def open(self, case, width=1280, height=800, **options):
        context = self.browser.new_context(viewport={"width": width, "height": height}, offline=True, **options)
        # For what never comes; a busy machine is slow.
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.requests, page.troubles = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("console", lambda said: page.troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(case.page.as_uri())
        page.wait_for_selector("html[data-ready]")
        wait_painted(page)
        return page

    def close(self):
        self.browser.close()
        self.playwright.stop()


def wait_painted(page):
    """Waits until the page is painted."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def press(page, key, times=1):
    for _ in range(times):
        page.keyboard.press(key)
    wait_painted(page)


def size(text):
    """The bytes that a size on the page stands for, and how far rounding may be off."""
    number, unit = text.split()[:2]
    scale = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}[unit]
    digits = len(number.split(".")[1]) if "." in number else 0
    return float(number) * scale, 0.5001 * scale / 10**digits


def same_size(text, bytes, what):
    shown, slack = size(text)
    assert abs(shown - bytes) <= slack, f"{what}: the page says {text}, the journal {bytes}"


def count(text):
    return int("".join(letter for letter in text if letter.isdigit()))


def event_of(page):
    """The journal's number of the event at the cursor, as the page says it."""
    said = page.inner_text("#moment")
    assert "event " in said, said
    return count(said.split("event ")[1].split(" · ")[0])


def live_of(page):
    """The live size that the page shows at the cursor."""
    return next(part for part in page.inner_text("#moment").split(" · ") if part.endswith(" live"))[: -len(" live")]
