"""Frame times of the page on many events, as JSON lines. Beside them a page of a thousandth of the events: what the
browser and the machine cost on their own."""
import json
import sys
import time

from stage import Case, Stage, wait_painted

DRIVE = """async (steps) => {
  const page = window.weir, last = page.journal.count, gaps = [], script = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  let before = performance.now();
  for (let n = 0; n < steps; n++) {
    ACT
    await frame();
    const now = performance.now();
    gaps.push(now - before);
    before = now;
    script.push(page.painted.at(-1));
  }
  const sorted = (list) => list.toSorted((a, b) => a - b);
  const at = (list, part) => Math.round(100 * sorted(list)[Math.floor(part * (list.length - 1))]) / 100;
  return { frames: steps, script_ms_median: at(script, 0.5), script_ms_p95: at(script, 0.95), frame_ms_median: at(gaps, 0.5), frame_ms_p95: at(gaps, 0.95) };
}"""
ACTS = {
    "scrub": "page.goTo(last * (0.1 + 0.8 * n / steps));",
    "pan": "const span = (page.full[1] - page.full[0]) / 3; page.show(page.full[0] + span * 2 * n / steps, page.full[0] + span * (1 + 2 * n / steps));",
    "zoom": "page.zoom(n % 60 < 30 ? 0.8 : 1.25);",
}


def main():
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    stage = Stage()
    for count in [max(1000, events // 1000), events]:
        begun = time.monotonic()
        case = Case(f"bench-{count}", "storm", str(count))
        made = time.monotonic() - begun
        begun = time.monotonic()
        case.write()
        written = time.monotonic() - begun
        begun = time.monotonic()
        page = stage.open(case)
        opened = time.monotonic() - begun
        say = lambda **figures: print(json.dumps({"bench": "html", "events": count, **figures}), flush=True)
        say(what="page", journal_s=round(made - written, 2), write_s=round(written, 2), open_s=round(opened, 2), page_mib=round(case.page.stat().st_size / 2**20, 2))
        for what, act in ACTS.items():
            say(what=what, **page.evaluate(DRIVE.replace("ACT", act), 120))
            page.evaluate("() => weir.show(...weir.full)")
            wait_painted(page)
        regroup = page.evaluate("""async () => { const times = []; for (const grouping of ['op', 'line', 'op']) {
          const begun = performance.now(); document.querySelector(`#grouping [data-value=${grouping}]`).click(); times.push(performance.now() - begun); }
          return Math.round(Math.max(...times)); }""")
        say(what="regroup", worst_ms=regroup)
    stage.close()


if __name__ == "__main__":
    main()
