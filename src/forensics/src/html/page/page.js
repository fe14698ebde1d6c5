// The page itself: what is chosen, where the cursor is, and who must be painted again. Painting happens once a
// frame, however many things requested it.

const GROUPS = 9;
const HOST = 63;
const GROUPINGS = [["role", "Role"], ["line", "Python line"], ["op", "Op"], ["class", "Class"]];
/** What a frame is, as facts.rs numbers it. */
const FRAME_PYTHON = 0, FRAME_OP = 1, FRAME_LIBRARY = 3;
const UNKNOWN = { op: "no op known", line: "no Python line known", role: "other", class: "other" };

const page = {
  grouping: "role", view: "driver", axis: "time", device: 0, cursor: 0, focus: null,
  from: 0, to: 1, full: [0, 1], groups: [], colours: [], ink: {}, font: "12px system-ui, sans-serif",
};

/** The place of a moment on the horizontal axis, and back. */
page.placeOf = (moment) => (page.axis === "time" ? page.journal.time[moment] : moment);
page.momentAtTime = (time) => (time < page.journal.time[0] ? 0 : lastAtMost(page.journal.time, time));
page.momentAt = (place) =>
  page.axis === "time" ? page.momentAtTime(place) : Math.max(0, Math.min(page.journal.count, Math.round(place)));
page.placeText = (place) =>
  page.axis === "time" ? secondsText(place - page.full[0], page.to - page.from) : `event ${countText(place)}`;
page.momentText = (moment) => {
  const { seq, time, count } = page.journal;
  const at = secondsText(time[moment] - page.start, Math.max(1, (page.end - page.start) / 1000));
  return `${at} · ${moment ? `event ${countText(seq[moment - 1])}` : "before the first event"}${moment === count ? " (last)" : ""}`;
};
/** What a holder is called in the chosen grouping. */
page.labelOf = (holder) => page.journal.text(holder[page.grouping]) || UNKNOWN[page.grouping];

function isShown(holder) {
  if (holder.device !== page.device) return false;
  if (page.device === HOST) return true;
  return page.view === "tensor" ? holder.kind === "tensor" : holder.kind === "pool" || holder.kind === "device";
}

/** Forms the groups anew: the largest at the peak and at the end get a colour each, the rest shares one. */
function regroup() {
  const { journal } = page;
  const { holders } = journal.facts;
  page.deviceFacts = journal.facts.devices.find((device) => device.number === page.device);
  page.shown = Uint8Array.from(holders, (holder) => isShown(holder));
  const one = new Levels(journal, Uint8Array.from(page.shown, (shown) => (shown ? 0 : HIDDEN)), 1);
  page.peak = one.peak;
  peakLive = null;
  const weights = new Map();
  for (const live of [page.liveAtPeak(), liveAt(journal, journal.count, page.shown)]) {
    const sums = new Map();
    holders.forEach((holder, number) => {
      if (page.shown[number]) sums.set(holder[page.grouping], (sums.get(holder[page.grouping]) ?? 0) + live.bytes[number]);
    });
    for (const [key, bytes] of sums) weights.set(key, Math.max(weights.get(key) ?? 0, bytes));
  }
  const order = [...weights].sort((a, b) => b[1] - a[1]);
  const own = order.slice(0, order.length > GROUPS + 1 ? GROUPS : GROUPS + 1);
  page.groups = own.map(([key]) => ({ key, label: journal.text(key) || UNKNOWN[page.grouping] }));
  const rest = order.length > own.length;
  if (rest) page.groups.push({ key: null, label: `${countText(order.length - own.length)} others` });
  const places = new Map(own.map(([key], place) => [key, place]));
  page.groupOf = Uint8Array.from(holders, (holder, number) =>
    page.shown[number] ? (places.get(holder[page.grouping]) ?? page.groups.length - 1) : HIDDEN);
  // What was taken from the driver: more than what is live, where a pool keeps memory.
  const physical = (holder) => holder.device === page.device && (holder.kind === "physical" || holder.kind === "device");
  page.physical = page.device !== HOST && holders.some((holder) => holder.device === page.device && holder.kind === "physical")
    ? new Levels(journal, Uint8Array.from(holders, (holder) => (physical(holder) ? 0 : HIDDEN)), 1) : null;
  page.levels = new Levels(journal, page.groupOf, Math.max(1, page.groups.length));
  page.order = steadiest(page.levels);
  page.groupingName = GROUPINGS.find(([key]) => key === page.grouping)[1];
  page.focus = null;
  const mine = (mark) => mark.device === page.device || mark.device === HOST;
  const { marks } = journal.facts;
  page.marks = {
    steps: marks.filter((mark) => mark.kind === "step"),
    ooms: marks.filter((mark) => mark.kind === "oom" && mine(mark)),
    refusals: marks.filter((mark) => ["refused", "failed", "attempt"].includes(mark.kind) && mine(mark)),
    said: marks.filter((mark) => mark.kind === "mark"),
    regions: regionsOf(marks),
  };
  byId("to-oom").hidden = !page.marks.ooms.length;
  colour();
  page.goTo(page.cursor, true);
  page.parts.table.choose();
  page.parts.address.choose();
  page.parts.flame.choose();
  tiles();
  repaintAll();
}

/** The job's regions: name, depth in its thread, first and last entry. One that never ended lasts to the end of the page. */
function regionsOf(marks) {
  const regions = [], open = new Map();
  for (const { kind, name, thread, entry } of marks) {
    if (kind !== "region_begin" && kind !== "region_end") continue;
    if (!open.has(thread)) open.set(thread, []);
    const stack = open.get(thread);
    if (kind === "region_begin") {
      stack.push({ name, depth: stack.length, from: entry, to: page.journal.count });
      regions.push(stack.at(-1));
    } else {
      const place = stack.findLastIndex((region) => region.name === name);
      if (place >= 0) stack.splice(place, 1)[0].to = entry;
    }
  }
  return regions;
}

/** The groups in the order in which they are stacked: what hardly changes lies at the bottom. */
function steadiest(levels) {
  const { count } = page.journal;
  const least = new Array(levels.groups).fill(Infinity), most = new Array(levels.groups).fill(1);
  for (let n = 20; n <= 100; n++) {
    levels.sumsAt(Math.floor((count * n) / 100)).forEach((bytes, group) => {
      least[group] = Math.min(least[group], bytes);
      most[group] = Math.max(most[group], bytes);
    });
  }
  return least.map((_, group) => group).sort((a, b) => least[b] / most[b] - least[a] / most[a] || a - b);
}

let peakLive = null;
page.liveAtPeak = () => (peakLive ??= liveAt(page.journal, page.peak, page.shown));

/** Reads the colours of the theme that is in force. */
function colour() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  const names = ["text", "soft", "grid", "card", "alarm", "limit", "cursor", "brush", "veil", "handle", "hole", "past", "step", "refused", "resident", "pinned", "mapped", "physical"];
  page.ink = Object.fromEntries(names.map((name) => [name, get("--" + name)]));
  page.ink.flameText = get("--flame-text");
  page.ink.flame = [0, 1, 2, 3].map((kind) => get("--flame-" + kind).split(" ").map(Number));
  page.font = `12px ${get("--font")}`;
  page.colours = page.groups.map((group, place) => get(group.key === null ? "--rest" : `--g${place}`));
  legend();
}

function legend() {
  const taken = page.physical ? [make("li", { class: "taken" }, make("i", { style: `background:${page.ink.physical}` }), "taken from the driver")] : [];
  byId("legend").replaceChildren(...page.groups.map((group, place) => {
    const size = make("b", {});
    const button = make("button", { type: "button", title: group.label, "aria-pressed": String(page.focus === place), onclick: () => page.toggleFocus(place) },
      make("i", { class: "swatch", style: `background:${page.colours[place]}` }), make("span", {}, group.label), size);
    group.size = size;
    return make("li", {}, button);
  }), ...taken);
  sizes();
}

function sizes() {
  const sums = page.levels.sumsAt(page.cursor);
  page.groups.forEach((group, place) => { group.size.textContent = bytesText(sums[place]); });
}

page.toggleFocus = (group) => {
  if (group === HIDDEN || group === undefined) return;
  page.focus = page.focus === group ? null : group;
  legend();
  repaintAll();
};

/** Puts the cursor on a moment. */
page.goTo = (moment, always = false) => {
  moment = Math.max(0, Math.min(page.journal.count, Math.round(moment)));
  if (moment === page.cursor && !always) return;
  page.cursor = moment;
  stale.live = true;
  page.paint();
};

/** Goes to a moment and shows its surroundings when it lies outside the window. */
function visit(moment) {
  page.goTo(moment);
  const place = page.placeOf(page.cursor), half = (page.to - page.from) / 2;
  if (place < page.from || place > page.to) page.show(place - half, place + half);
}

/** Shows a part of the axis. */
page.show = (from, to) => {
  const [low, high] = page.full;
  const least = page.axis === "time" ? Math.min(1000, high - low) : Math.min(8, high - low);
  const span = Math.max(least, Math.min(high - low, to - from));
  page.from = Math.max(low, Math.min(high - span, from));
  page.to = page.from + span;
  page.parts.timeline.dirtyWindow = true;
  page.paint();
};
page.zoom = (factor, around = page.placeOf(page.cursor)) => {
  const at = around >= page.from && around <= page.to ? around : (page.from + page.to) / 2;
  page.show(at - (at - page.from) * factor, at + (page.to - at) * factor);
};

function chooseAxis(axis) {
  const [a, b] = [page.momentAt(page.from), page.momentAt(page.to)];
  const whole = page.from <= page.full[0] && page.to >= page.full[1];
  page.axis = axis;
  page.full = axis === "time" ? [page.start, page.end] : [0, Math.max(1, page.journal.count)];
  if (whole) page.show(...page.full);
  else page.show(page.placeOf(a), page.placeOf(b));
  repaintAll();
}

// Painting.
const stale = { live: true, frame: 0 };
page.paint = () => {
  stale.frame ||= requestAnimationFrame(frame);
};
function repaintAll() {
  for (const part of Object.values(page.parts)) part.dirty = true;
  page.paint();
}
function frame() {
  stale.frame = 0;
  const begun = performance.now();
  if (stale.live) {
    page.live = liveAt(page.journal, page.cursor, page.shown);
    for (const part of ["address", "table"]) page.parts[part].dirty = true;
    if (page.parts.flame.of === "cursor") page.parts.flame.dirty = true;
    stale.live = false;
    moment();
  }
  page.parts.timeline.draw();
  for (const name of ["address", "flame", "table"]) {
    const part = page.parts[name];
    if (!part.dirty) continue;
    part.dirty = false;
    part.draw();
  }
  page.painted.push(performance.now() - begun);
  if (page.painted.length > 4096) page.painted.shift();
}
/** Milliseconds of script that each of the last frames took. */
page.painted = [];

function moment() {
  const { cursor, levels } = page;
  byId("scrubber").value = cursor;
  const step = page.marks.steps.findLast((mark) => mark.entry < cursor);
  const oom = page.marks.ooms.find((mark) => mark.entry + 1 === cursor);
  const text = [page.momentText(cursor), `${bytesText(levels.total[cursor])} live`];
  if (page.physical) text.push(`${bytesText(page.physical.total[cursor])} taken`);
  if (step) text.push(`step ${countText(step.number)}`);
  const said = page.marks.said.findLast((mark) => mark.entry < cursor);
  if (said) text.push(`after “${said.name}”`);
  for (const region of page.marks.regions) if (region.from < cursor && cursor <= region.to) text.push(`in ${region.name}`);
  if (oom) text.push(`OUT OF MEMORY: ${bytesText(oom.requested)} requested`);
  byId("moment").textContent = text.join(" · ");
  byId("scrubber").setAttribute("aria-valuetext", text.join(", "));
  byId("timeline").setAttribute("aria-label", `Live memory over time. Cursor: ${text.join(", ")}`);
  sizes();
}

function tiles() {
  const { journal, levels } = page;
  const { facts } = journal;
  const device = page.deviceFacts;
  const peak = levels.total[page.peak];
  const share = (bytes, of) => (of ? ` · ${((100 * bytes) / of).toFixed(0)} % of it` : "");
  const all = [
    ["Peak", bytesText(peak), secondsText(journal.time[page.peak] - page.start, (page.end - page.start) / 10), "peak"],
    ["Live at the end", bytesText(levels.total[journal.count]), `${countText(liveAt(journal, journal.count, page.shown).list.length)} blocks`, "end"],
    ["Cap", device?.cap ? bytesText(device.cap) : "none", device?.cap ? `peak${share(peak, device.cap)}` : "", "cap"],
    ["Device", device?.total ? bytesText(device.total) : "unknown", device?.name ?? "", "total"],
    ["Out of memory", countText(facts.counters.oom_seen), facts.counters.oom_seen === 1 ? "failure" : "failures", "ooms"],
    ["Events", countText(facts.counters.events), `${countText(journal.count)} on this page`, "events"],
  ];
  byId("tiles").replaceChildren(...all.map(([name, value, more, id]) =>
    make("div", { class: id === "ooms" && facts.counters.oom_seen ? "tile alarm" : "tile", id: `tile-${id}` },
      make("span", {}, name), make("b", {}, value), make("small", {}, more))));
}

function verdict() {
  const { facts } = page.journal;
  const said = facts.verdict;
  const card = byId("verdict");
  card.classList.toggle("alarm", said.alarm);
  const lines = said.lines.map(([name, text]) => make("div", { class: "said" }, make("dt", {}, name), make("dd", {}, ...linked(text))));
  if (said.tries.length) lines.push(make("div", { class: "said" }, make("dt", {}, "Try"), make("dd", {}, make("ol", { class: "tries" }, ...said.tries.map(remedy)))));
  card.replaceChildren(make("p", { class: "headline" }, make("strong", {}, said.title), said.cause ? make("span", { class: "cause" }, said.cause) : ""),
    make("dl", {}, ...lines), ...deviceBar(said.parts));
}

/** Editors, and how each is called to a file and a line of it. */
const EDITORS = {
  "VS Code": (file, line) => `vscode://file${file}:${line}`,
  "Cursor": (file, line) => `cursor://file${file}:${line}`,
  "Zed": (file, line) => `zed://file${file}:${line}`,
  "JetBrains": (file, line) => `idea://open?file=${file}&line=${line}`,
};
let editor = Object.keys(EDITORS)[0];

/** Where the editor opens a line such as `train.py:7`; none where its file is not known. */
page.linkOf = (place) => {
  const { places } = page.journal.facts;
  if (!Object.hasOwn(places, place)) return null;
  const [, file, line] = places[place].match(/^([\s\S]*):(\d+)$/);
  return { href: EDITORS[editor](file.split("/").map(encodeURIComponent).join("/"), line), title: `Open ${places[place]} in ${editor}` };
};

/** A text in pieces, of which lines of code are links into the editor. */
const linked = (text) => text.split(/([^\s()]+:\d+)/).map((piece) => {
  const link = page.linkOf(piece);
  return link ? make("a", link, piece) : piece;
});

/** A remedy: what to do, how that was shown, and the command that does it. */
function remedy({ text, how, command }) {
  const item = make("li", {}, ...linked(`${text} `), make("span", { class: "how" }, `(${how})`));
  if (command) {
    const code = make("code", { tabindex: "0" }, command);
    const button = make("button", { type: "button", "aria-label": `Copy: ${command}`, onclick: () => copy(code, button) }, "Copy");
    item.append(make("div", { class: "command" }, code, button));
  }
  return item;
}

/** Copies a command; where the browser gives no access to the clipboard, it is selected for the reader to copy. */
async function copy(code, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected";
  setTimeout(() => { button.textContent = "Copy"; }, 1600);
}

/** The stack of a holder for the little window, outermost first: what is in libraries is folded, and so is the middle of a long one. */
page.stackOf = (holder) => {
  const { journal } = page;
  const folded = [];
  for (const frame of journal.facts.stacks[holder.stack]) {
    const [text, kind] = [journal.text(Math.floor(frame / 4)), frame % 4];
    if (kind === FRAME_OP) continue;
    const last = folded.at(-1);
    if (kind !== FRAME_LIBRARY) folded.push({ text: frameText(text, kind) });
    else if (last?.packages) last.packages.push(packageOf(text));
    else folded.push({ packages: [packageOf(text)] });
  }
  const lines = folded.map(({ text, packages }) => text
    ?? `… ${packages.length} frame${packages.length === 1 ? "" : "s"} in ${[...new Set(packages)].join(", ")}`);
  const most = 12;
  return lines.length <= most ? lines : [...lines.slice(0, 3), `… ${lines.length - most + 1} more`, ...lines.slice(4 - most)];
};

/** "function path:line" as Python's tracebacks order it, with the end of the path. */
function frameText(text, kind) {
  const [, name, path] = (kind === FRAME_PYTHON && text.match(/^(\S*) ([\s\S]*)$/)) || [0, "", text];
  return name ? `${path.slice(path.lastIndexOf("/") + 1)} in ${name}` : text;
}

/** The package that a library's frame is in. */
const packageOf = (text) => text.match(/\/(?:site|dist)-packages\/([^/:]+)/)?.[1].replace(/\.py$/, "") ?? "Python's library";

/** The device's memory at the verdict's moment; the parts add up to the device. */
function deviceBar(parts) {
  const all = parts.reduce((sum, [, , bytes]) => sum + bytes, 0);
  if (!all) return [];
  const bar = make("div", { class: "device-bar", role: "img", "aria-label": parts.map(([what, , bytes]) => `${what} ${bytesText(bytes)}`).join(", ") });
  const key = make("ul", { class: "device-key" });
  parts.forEach(([what, part, bytes]) => {
    if (!bytes) return;
    bar.append(make("i", { class: `part-${part}`, style: `flex-grow:${bytes / all}`, title: `${what} ${bytesText(bytes)}` }));
    key.append(make("li", {}, make("i", { class: `part-${part}` }), what, make("b", {}, bytesText(bytes)), make("small", {}, `${((100 * bytes) / all).toFixed(1)} %`)));
  });
  return [bar, key];
}

function evidence() {
  const { facts, count } = page.journal;
  const { counters } = facts;
  const parts = [
    `${countText(counters.events)} events recorded, ${countText(counters.lapped)} lost, ${countText(facts.missed)} missing on the way`,
    facts.older ? `${countText(facts.older)} older events are shown as a curve only` : `all ${countText(count)} that change something are on this page`,
    { alive: "the process runs", ended: "the process exited in order", killed: "the process was killed or crashed" }[facts.state] ?? "the state of the process is not visible from here",
  ];
  if (facts.turned_off) parts.push(`weir turned itself off: ${facts.turned_off}`);
  byId("evidence").textContent = parts.join(" · ");
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.matches("input[type=search], select")) return;
  const onSlider = target.id === "scrubber";
  const far = Math.max(1, Math.round((page.momentAt(page.to) - page.momentAt(page.from)) / 50));
  const quarter = (page.to - page.from) / 4;
  const act = {
    ArrowLeft: () => visit(page.cursor - (event.shiftKey ? far : 1)),
    ArrowRight: () => visit(page.cursor + (event.shiftKey ? far : 1)),
    PageUp: onSlider ? () => visit(page.cursor - far * 5) : null,
    PageDown: onSlider ? () => visit(page.cursor + far * 5) : null,
    Home: onSlider || target.id === "timeline" ? () => visit(0) : null,
    End: onSlider || target.id === "timeline" ? () => visit(page.journal.count) : null,
    "+": () => page.zoom(0.5), "=": () => page.zoom(0.5), "-": () => page.zoom(2), 0: () => page.show(...page.full),
    "[": () => page.show(page.from - quarter, page.to - quarter),
    "]": () => page.show(page.from + quarter, page.to + quarter),
    p: () => visit(page.peak), o: nextOom,
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function nextOom() {
  const { ooms } = page.marks;
  const next = ooms.find((mark) => mark.entry + 1 > page.cursor) ?? ooms[0];
  if (next) visit(next.entry + 1);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
function chooseTheme(chosen) {
  theme = chosen;
  document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  colour();
  repaintAll();
  moment();
}

async function start() {
  page.journal = await openJournal();
  const { journal } = page;
  const { facts } = journal;
  const times = [journal.time[0], journal.host.time[0] ?? Infinity, journal.past.time[0] ?? Infinity];
  page.start = Math.min(...times);
  page.end = Math.max(page.start + 1, journal.time[journal.count], journal.host.time.at(-1) ?? 0);
  page.full = [page.start, page.end];
  [page.from, page.to] = page.full;
  page.cursor = journal.count;
  byId("scrubber").max = journal.count;

  byId("command").title = facts.command.join(" ") || "unknown command";
  const begun = new Date(facts.started_ms).toISOString().replace("T", " ").slice(0, 19);
  byId("identity").textContent = `pid ${facts.pid} · ${begun} UTC`;
  const held = new Set(facts.holders.map((holder) => holder.device));
  const devices = [...new Set([...facts.devices.map((device) => device.number), ...held])].sort((a, b) => a - b);
  const nameOf = (number) => (number === HOST ? "Host memory" : `GPU ${number} ${facts.devices.find((one) => one.number === number)?.name ?? ""}`);
  byId("device").append(...devices.map((number) => make("option", { value: number }, nameOf(number))));
  byId("device-pick").hidden = devices.length < 2;
  page.device = devices.includes(facts.device) ? facts.device : devices[0] ?? 0;
  byId("device").value = page.device;
  byId("device").addEventListener("change", (event) => {
    page.device = Number(event.target.value);
    regroup();
  });

  page.parts = { timeline: makeTimeline(page), address: makeAddressMap(page), flame: makeFlame(page), table: makeTable(page) };
  const tensors = facts.holders.some((holder) => holder.kind === "tensor");
  const has = (key) => new Set(facts.holders.map((holder) => holder[key])).size > 1;
  const groupings = GROUPINGS.filter(([key]) => has(key));
  page.grouping = (groupings[0] ?? GROUPINGS[0])[0];
  byId("editor").append(...Object.keys(EDITORS).map((name) => make("option", {}, name)));
  byId("editor-pick").hidden = !Object.keys(facts.places).length;
  byId("editor").addEventListener("change", (event) => {
    editor = event.target.value;
    verdict();
    page.parts.table.dirty = true;
    page.paint();
  });
  segmented("theme", [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], "auto", chooseTheme);
  segmented("grouping", groupings, page.grouping, (grouping) => { page.grouping = grouping; regroup(); });
  segmented("view", tensors ? [["driver", "Driver"], ["tensor", "Tensors"]] : [], "driver", (view) => { page.view = view; regroup(); });
  segmented("axis", [["time", "Time"], ["event", "Events"]], "time", chooseAxis);
  segmented("flame-of", [["cursor", "At cursor"], ["peak", "At peak"]], "cursor", (of) => { page.parts.flame.of = of; page.parts.flame.choose(); page.paint(); });
  const on = (id, act) => byId(id).addEventListener("click", act);
  on("zoom-in", () => page.zoom(0.5));
  on("zoom-out", () => page.zoom(2));
  on("zoom-all", () => page.show(...page.full));
  on("to-previous", () => visit(page.cursor - 1));
  on("to-next", () => visit(page.cursor + 1));
  on("to-peak", () => visit(page.peak));
  on("to-oom", nextOom);
  on("to-end", () => visit(journal.count));
  byId("scrubber").addEventListener("input", (event) => visit(Number(event.target.value)));
  document.addEventListener("keydown", keys);

  verdict();
  evidence();
  resize();
  regroup();
  // Where the verdict was taken; a failure that the journal has overwritten leaves the next best. Where nothing failed, the peak.
  const failure = facts.moment ?? page.marks.ooms.at(-1)?.entry;
  page.goTo(failure === undefined ? page.peak : failure + 1);
  new ResizeObserver(resize).observe(document.querySelector("main"));
  dark.addEventListener("change", () => chooseTheme(theme));
  document.documentElement.dataset.ready = "yes";
  window.weir = page;
}

function resize() {
  for (const part of ["timeline", "address", "flame"]) page.parts[part].resize();
  page.paint();
}

start().catch((error) => {
  byId("verdict").classList.add("alarm");
  byId("verdict").textContent = `This page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});
