// Live memory over time: the stacked chart, host memory on the same axis below it, and the overview with the part
// that is shown. Charts are painted once for a window and kept; moving the cursor only lays lines over them.

const EDGE = { left: 64, right: 14, top: 20, bottom: 22 };

/** Round numbers from 0 to `most`, about `wanted` of them, in the unit that suits. */
function sizeTicks(most, wanted) {
  const [unit, name] = most >= GIB / 4 ? [GIB, "GiB"] : most >= MIB / 4 ? [MIB, "MiB"] : [KIB, "KiB"];
  const step = roundStep(most / unit / wanted);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let value = 0; value * unit <= most; value += step) ticks.push([value * unit, value.toFixed(digits) + " " + name]);
  return ticks;
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-12)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}

function makeTimeline(page) {
  const main = surface("timeline", 280), host = surface("host", 76), overview = surface("overview", 46);
  const kept = { main: document.createElement("canvas"), overview: document.createElement("canvas") };
  const { journal } = page;
  const self = { dirty: true, hover: null, brush: null };
  let most = 1, moments = null;

  const inner = (on) => on.width - EDGE.left - EDGE.right;
  const xOf = (place) => EDGE.left + ((place - page.from) / (page.to - page.from)) * inner(main);
  const placeAt = (x) => page.from + ((x - EDGE.left) / inner(main)) * (page.to - page.from);
  const clampX = (x) => Math.max(EDGE.left, Math.min(main.width - EDGE.right, x));
  const yOf = (bytes, on) => on.height - EDGE.bottom - (bytes / most) * (on.height - EDGE.top - EDGE.bottom);

  self.resize = () => {
    EDGE.left = main.canvas.parentElement.clientWidth < 560 ? 60 : 64;
    main.fit(innerWidth < 700 ? 220 : 280);
    host.fit();
    overview.fit();
    self.dirty = true;
  };

  function highestOf(columns) {
    let highest = 0;
    for (const moment of columns) highest = Math.max(highest, page.levels.total[moment]);
    for (const bytes of page.axis === "time" ? journal.past.bytes : []) highest = Math.max(highest, bytes);
    return highest;
  }

  /** Fills the stack of groups into a box of this height, which stands for `most` bytes. */
  function stack(pen, columns, left, bottom, height, most) {
    const { levels, colours } = page;
    const groups = levels.groups, width = columns.length;
    const values = new Float64Array(width * groups);
    for (let x = 0; x < width; x++) values.set(levels.sumsAt(columns[x]), x * groups);
    const scale = height / most;
    const low = new Float32Array(width), high = new Float32Array(width);
    for (const group of page.order) {
      let any = false;
      for (let x = 0; x < width; x++) {
        low[x] = high[x];
        const value = values[x * groups + group] * scale;
        any ||= value > 0.05;
        high[x] += value;
      }
      if (!any) continue;
      pen.beginPath();
      pen.moveTo(left, bottom - high[0]);
      for (let x = 0; x < width; x++) {
        pen.lineTo(left + x, bottom - high[x]);
        pen.lineTo(left + x + 1, bottom - high[x]);
      }
      for (let x = width - 1; x >= 0; x--) {
        pen.lineTo(left + x + 1, bottom - low[x]);
        pen.lineTo(left + x, bottom - low[x]);
      }
      pen.closePath();
      pen.globalAlpha = page.focus === null || page.focus === group ? 1 : 0.18;
      pen.fillStyle = colours[group];
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  function layer(canvas, on) {
    canvas.width = on.canvas.width;
    canvas.height = on.canvas.height;
    const pen = canvas.getContext("2d");
    pen.setTransform(on.scale, 0, 0, on.scale, 0, 0);
    return pen;
  }

  /** The curve of events that are older than the first entry. */
  function paintPast(pen, x, y, left, right) {
    const { device, time, bytes } = journal.past;
    if (page.axis !== "time" || !time.length) return;
    pen.beginPath();
    let last = null;
    for (let place = 0; place < time.length; place++) {
      if (device[place] !== page.device) continue;
      const at = Math.max(left, Math.min(right, x(time[place])));
      if (last === null) pen.moveTo(at, y(0));
      pen.lineTo(at, y(bytes[place]));
      last = at;
    }
    if (last === null) return;
    const end = Math.max(left, Math.min(right, x(journal.time[0])));
    pen.lineTo(end, y(0));
    pen.closePath();
    pen.fillStyle = page.ink.past;
    pen.fill();
  }

  function paintMain() {
    const pen = layer(kept.main, main);
    const { ink } = page;
    const width = Math.max(1, Math.floor(inner(main)));
    const bottom = main.height - EDGE.bottom, height = bottom - EDGE.top;
    moments = page.levels.columns(page.from, page.to, width, page.momentAt);
    const facts = page.deviceFacts;
    const limits = [];
    if (facts?.cap) limits.push([facts.cap, `cap ${bytesText(facts.cap)}`]);
    if (facts?.total) limits.push([facts.total, `device ${bytesText(facts.total)}`]);
    const taken = page.physical?.columns(page.from, page.to, width, page.momentAt);
    let highest = highestOf(moments);
    for (const moment of taken ?? []) highest = Math.max(highest, page.physical.total[moment]);
    most = Math.max(highest, 1) * 1.06;
    for (const [bytes] of limits) if (bytes > highest && bytes < highest * 1.7) most = Math.max(most, bytes * 1.06);
    pen.save();
    pen.font = page.font;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const [bytes, text] of sizeTicks(most, height / 40)) {
      const y = Math.round(yOf(bytes, main)) + 0.5;
      pen.strokeStyle = ink.grid;
      line(pen, EDGE.left, y, main.width - EDGE.right, y);
      pen.fillStyle = ink.soft;
      pen.fillText(text, EDGE.left - 8, y);
    }
    stack(pen, moments, EDGE.left, bottom, height, most);
    paintPast(pen, xOf, (bytes) => yOf(bytes, main), EDGE.left, main.width - EDGE.right);
    if (taken) {
      pen.beginPath();
      taken.forEach((moment, x) => {
        const y = yOf(page.physical.total[moment], main);
        pen.lineTo(EDGE.left + x, y);
        pen.lineTo(EDGE.left + x + 1, y);
      });
      pen.strokeStyle = ink.physical;
      pen.lineWidth = 1.5;
      pen.stroke();
      pen.lineWidth = 1;
    }
    pen.textAlign = "left";
    for (const [bytes, text] of limits) {
      if (bytes > most) continue;
      const y = Math.round(yOf(bytes, main)) + 0.5;
      pen.strokeStyle = pen.fillStyle = ink.limit;
      pen.setLineDash([6, 4]);
      line(pen, EDGE.left, y, main.width - EDGE.right, y);
      pen.setLineDash([]);
      const wide = pen.measureText(text).width;
      pen.fillStyle = ink.card;
      pen.fillRect(EDGE.left + 6, y - 8, wide + 8, 15);
      pen.fillStyle = ink.limit;
      pen.fillText(text, EDGE.left + 10, y);
    }
    paintTimes(pen, bottom);
    paintSaid(pen, bottom);
    paintMarks(pen, bottom);
    pen.restore();
  }

  function line(pen, x1, y1, x2, y2) {
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  }

  function paintTimes(pen, bottom) {
    const span = page.to - page.from;
    const step = roundStep(span / Math.max(2, inner(main) / 110));
    pen.fillStyle = page.ink.soft;
    pen.strokeStyle = page.ink.grid;
    pen.textAlign = "center";
    const zero = page.axis === "time" ? page.full[0] : 0;
    for (let place = Math.ceil((page.from - zero) / step) * step; place <= page.to - zero; place += step) {
      const x = Math.round(xOf(place + zero)) + 0.5;
      line(pen, x, bottom, x, bottom + 4);
      const text = page.axis === "time" ? secondsText(place, step * 8) : countText(place);
      if (x > EDGE.left + 14 && x < main.width - EDGE.right - 14) pen.fillText(text, x, bottom + 13);
    }
  }

  /** What the job said of itself: regions as bars at the bottom, one row a depth, and marks as lines with their names. */
  function paintSaid(pen, bottom) {
    const { said, regions } = page.marks;
    const end = main.width - EDGE.right;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const drawn = [-9, -9, -9, -9];
    for (const { name, depth, from, to } of regions) {
      const left = xOf(page.placeOf(from + 1)), right = xOf(page.placeOf(Math.min(to + 1, journal.count)));
      if (right < EDGE.left || left > end || depth > 3 || right - drawn[depth] < 1) continue;
      drawn[depth] = right;
      const [a, b] = [clampX(left), clampX(right)], y = bottom - 6 - (depth + 1) * 15;
      pen.globalAlpha = 0.85;
      pen.fillStyle = page.ink.card;
      pen.fillRect(a, y, Math.max(1, b - a), 13);
      pen.globalAlpha = 1;
      pen.strokeStyle = page.ink.step;
      pen.strokeRect(Math.round(a) + 0.5, y + 0.5, Math.max(1, Math.round(b - a) - 1), 12);
      pen.fillStyle = page.ink.soft;
      if (pen.measureText(name).width + 6 < b - a) pen.fillText(name, a + 4, y + 7);
    }
    const rows = Math.min(4, 1 + Math.max(-1, ...regions.map((region) => region.depth)));
    const y = bottom - 14 - rows * 15;
    let last = -9;
    for (const [place, mark] of said.entries()) {
      const x = Math.round(xOf(page.placeOf(mark.entry + 1))) + 0.5;
      if (x < EDGE.left || x > end || x - last < 2) continue;
      last = x;
      pen.strokeStyle = page.ink.step;
      pen.setLineDash([2, 3]);
      line(pen, x, EDGE.top, x, bottom);
      pen.setLineDash([]);
      const next = said[place + 1], wide = pen.measureText(mark.name).width + 8;
      if (x + wide > (next ? Math.min(end, xOf(page.placeOf(next.entry + 1))) : end)) continue;
      pen.fillStyle = page.ink.card;
      pen.fillRect(x + 1, y - 7, wide, 14);
      pen.fillStyle = page.ink.soft;
      pen.fillText(mark.name, x + 5, y);
    }
  }

  /** Steps as ticks when they are far enough apart, failures as flags. */
  function paintMarks(pen, bottom) {
    const { steps, ooms, refusals } = page.marks;
    const visible = (mark) => {
      const place = page.placeOf(mark.entry + 1);
      return place >= page.from && place <= page.to;
    };
    const seen = steps.filter(visible);
    if (seen.length && inner(main) / seen.length > 5) {
      pen.strokeStyle = page.ink.step;
      for (const mark of seen) {
        const x = Math.round(xOf(page.placeOf(mark.entry + 1))) + 0.5;
        line(pen, x, bottom - 5, x, bottom);
      }
    }
    pen.textBaseline = "middle";
    pen.strokeStyle = page.ink.refused;
    let last = -9;
    for (const mark of refusals.filter(visible)) {
      const x = Math.round(xOf(page.placeOf(mark.entry + 1))) + 0.5;
      if (x - last < 2) continue;
      last = x;
      line(pen, x, EDGE.top - 6, x, EDGE.top);
    }
    last = -99;
    for (const mark of ooms.filter(visible)) {
      const x = Math.round(xOf(page.placeOf(mark.entry + 1))) + 0.5;
      if (x - last < 3) continue;
      pen.strokeStyle = pen.fillStyle = page.ink.alarm;
      pen.lineWidth = 1.5;
      line(pen, x, EDGE.top - 4, x, bottom);
      pen.lineWidth = 1;
      if (x - last >= 40) {
        const flagX = Math.min(x, main.width - EDGE.right - 34);
        pen.beginPath();
        pen.roundRect(flagX - 2, 2, 36, 15, 3);
        pen.fill();
        pen.fillStyle = "#fff";
        pen.textAlign = "center";
        pen.fillText("OOM", flagX + 16, 10);
        last = x;
      }
    }
  }

  function paintHost() {
    host.begin();
    const { pen } = host;
    const { time, resident, pinned } = journal.host;
    pen.font = page.font;
    pen.textBaseline = "middle";
    const bottom = host.height - 8, height = bottom - 20;
    pen.fillStyle = page.ink.soft;
    pen.textAlign = "left";
    if (!time.length) {
      pen.fillText("No host memory was sampled.", EDGE.left, host.height / 2);
      return;
    }
    let highest = 1;
    for (const bytes of resident) highest = Math.max(highest, bytes);
    for (const bytes of pinned) highest = Math.max(highest, bytes);
    highest *= 1.05;
    const place = (at) => (page.axis === "time" ? time[at] : page.momentAtTime(time[at]));
    const first = Math.max(0, lastAtMost(time, page.axis === "time" ? page.from : journal.time[page.momentAt(page.from)]));
    const curve = (bytes, colour, filled) => {
      pen.beginPath();
      let begun = false, lastX = -1, top = 0;
      for (let at = first; at < time.length; at++) {
        const x = xOf(place(at));
        // One point a pixel, the highest.
        if (begun && x - lastX < 0.7) {
          top = Math.max(top, bytes[at]);
          continue;
        }
        const y = bottom - (bytes[at] / highest) * height;
        if (!begun) pen.moveTo(clampX(x), y);
        else if (top) pen.lineTo(clampX(lastX), bottom - (top / highest) * height);
        pen.lineTo(clampX(x), y);
        [begun, lastX, top] = [true, x, bytes[at]];
        if (x > host.width - EDGE.right) break;
      }
      pen.lineTo(clampX(xOf(page.to)), bottom - (top / highest) * height);
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.stroke();
      if (filled) {
        pen.lineTo(clampX(xOf(page.to)), bottom);
        pen.lineTo(clampX(xOf(place(first))), bottom);
        pen.globalAlpha = 0.14;
        pen.fillStyle = colour;
        pen.fill();
        pen.globalAlpha = 1;
      }
    };
    pen.strokeStyle = page.ink.grid;
    pen.lineWidth = 1;
    line(pen, EDGE.left, bottom + 0.5, host.width - EDGE.right, bottom + 0.5);
    curve(resident, page.ink.resident, true);
    curve(pinned, page.ink.pinned, false);
    const at = lastAtMost(time, journal.time[page.cursor]);
    const label = (text, colour, x) => {
      pen.fillStyle = colour;
      pen.fillRect(x, 7, 9, 3);
      pen.fillStyle = page.ink.text;
      pen.fillText(text, x + 14, 9);
      return x + 30 + pen.measureText(text).width;
    };
    const next = label(`host resident ${bytesText(resident[at])}`, page.ink.resident, EDGE.left);
    label(`pinned ${bytesText(pinned[at])}`, page.ink.pinned, next);
    pen.textAlign = "right";
    pen.fillStyle = page.ink.soft;
    // A digit after the point would not fit.
    pen.fillText(bytesText(highest / 1.05).replace(/\.\d (?=[MK]iB)/, " "), EDGE.left - 8, 26);
    const x = xOf(page.placeOf(page.cursor));
    if (x >= EDGE.left && x <= host.width - EDGE.right) {
      pen.strokeStyle = page.ink.cursor;
      line(pen, Math.round(x) + 0.5, 18, Math.round(x) + 0.5, bottom);
    }
  }

  function paintOverviewBase() {
    const pen = layer(kept.overview, overview);
    const width = Math.max(1, Math.floor(inner(overview)));
    const columns = page.levels.columns(page.full[0], page.full[1], width, page.momentAt);
    const top = Math.max(1, highestOf(columns));
    stack(pen, columns, EDGE.left, overview.height - 4, overview.height - 8, top);
    paintPast(pen, fullX, (bytes) => overview.height - 4 - (bytes / top) * (overview.height - 8), EDGE.left, overview.width - EDGE.right);
    pen.strokeStyle = page.ink.alarm;
    pen.lineWidth = 1.5;
    let last = -9;
    for (const mark of page.marks.ooms) {
      const at = Math.round(fullX(page.placeOf(mark.entry + 1))) + 0.5;
      if (at - last >= 2) line(pen, at, 4, at, overview.height - 4);
      last = at;
    }
  }

  const fullX = (place) => EDGE.left + ((place - page.full[0]) / (page.full[1] - page.full[0])) * inner(overview);
  const fullPlace = (x) => page.full[0] + ((x - EDGE.left) / inner(overview)) * (page.full[1] - page.full[0]);

  function paintOverview() {
    overview.begin();
    const { pen } = overview;
    pen.drawImage(kept.overview, 0, 0, overview.width, overview.height);
    const [a, b] = [fullX(page.from), fullX(page.to)];
    pen.fillStyle = page.ink.veil;
    pen.fillRect(EDGE.left, 0, a - EDGE.left, overview.height);
    pen.fillRect(b, 0, overview.width - EDGE.right - b, overview.height);
    pen.strokeStyle = page.ink.handle;
    pen.lineWidth = 1;
    pen.strokeRect(Math.round(a) + 0.5, 0.5, Math.max(2, Math.round(b - a) - 1), overview.height - 1);
    pen.fillStyle = page.ink.handle;
    for (const x of [a, b]) {
      pen.beginPath();
      pen.roundRect(x - 3, overview.height / 2 - 9, 6, 18, 3);
      pen.fill();
    }
    overview.canvas.setAttribute("aria-valuetext", `${page.placeText(page.from)} to ${page.placeText(page.to)}`);
    overview.canvas.setAttribute("aria-valuenow", Math.round((100 * (page.from - page.full[0])) / (page.full[1] - page.full[0])));
  }

  self.draw = () => {
    if (self.dirty) {
      paintMain();
      paintOverviewBase();
      self.dirty = false;
      self.dirtyWindow = false;
    } else if (self.dirtyWindow) {
      paintMain();
      self.dirtyWindow = false;
    }
    main.begin();
    const { pen } = main;
    pen.drawImage(kept.main, 0, 0, main.width, main.height);
    const bottom = main.height - EDGE.bottom;
    const x = xOf(page.placeOf(page.cursor));
    if (x >= EDGE.left - 1 && x <= main.width - EDGE.right + 1) {
      pen.strokeStyle = pen.fillStyle = page.ink.cursor;
      pen.lineWidth = 1.5;
      line(pen, x, EDGE.top - 4, x, bottom);
      pen.beginPath();
      pen.arc(x, yOf(page.levels.total[page.cursor], main), 4, 0, 7);
      pen.fill();
      pen.strokeStyle = page.ink.card;
      pen.stroke();
    }
    if (self.brush) {
      const [a, b] = [clampX(Math.min(self.brush[0], self.brush[1])), clampX(Math.max(self.brush[0], self.brush[1]))];
      pen.fillStyle = page.ink.brush;
      pen.fillRect(a, EDGE.top, b - a, bottom - EDGE.top);
    } else if (self.hover !== null) {
      pen.strokeStyle = page.ink.soft;
      pen.lineWidth = 1;
      line(pen, Math.round(self.hover) + 0.5, EDGE.top, Math.round(self.hover) + 0.5, bottom);
    }
    paintHost();
    paintOverview();
  };

  function momentUnder(x) {
    if (!moments) return 0;
    const column = Math.floor(clampX(x) - EDGE.left);
    // A column stands for its highest moment: what is clicked is what is seen.
    return moments[Math.max(0, Math.min(moments.length - 1, column))];
  }

  function describe(event, x) {
    const moment = momentUnder(x);
    const sums = Array.from(page.levels.sumsAt(moment), (bytes, group) => [bytes, group]);
    sums.sort((a, b) => b[0] - a[0]);
    const lines = sums.filter(([bytes]) => bytes > 0).slice(0, 6)
      .map(([bytes, group]) => [page.groups[group].label, bytesText(bytes), page.colours[group]]);
    tip.show(event, `${page.momentText(moment)} · ${bytesText(page.levels.total[moment])}`, lines);
  }

  // The chart: click stops there, drag zooms, Shift+drag moves, Ctrl+wheel zooms.
  let drag = null;
  main.canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    const { x } = main.at(event);
    drag = { x, from: page.from, to: page.to, moves: event.shiftKey || event.button === 1 };
    main.canvas.setPointerCapture(event.pointerId);
    tip.hide();
  });
  main.canvas.addEventListener("pointermove", (event) => {
    const { x } = main.at(event);
    if (!drag) {
      self.hover = clampX(x);
      describe(event, x);
    } else if (drag.moves) {
      const by = ((drag.x - x) / inner(main)) * (drag.to - drag.from);
      page.show(drag.from + by, drag.to + by);
    } else if (self.brush || Math.abs(x - drag.x) > 4) {
      self.brush = [drag.x, x];
    }
    page.paint();
  });
  const release = (event) => {
    if (!drag) return;
    const { x } = main.at(event);
    const [begun, brush] = [drag, self.brush];
    drag = self.brush = null;
    if (event.type === "pointercancel") return;
    if (brush) page.show(placeAt(clampX(Math.min(begun.x, x))), placeAt(clampX(Math.max(begun.x, x))));
    else if (!begun.moves) page.goTo(momentUnder(x));
    page.paint();
  };
  main.canvas.addEventListener("pointerup", release);
  main.canvas.addEventListener("pointercancel", release);
  main.canvas.addEventListener("pointerleave", () => {
    self.hover = null;
    tip.hide();
    page.paint();
  });
  main.canvas.addEventListener("dblclick", () => page.show(...page.full));
  main.canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (sideways) {
      const by = (event.deltaX / inner(main)) * (page.to - page.from);
      page.show(page.from + by, page.to + by);
    } else {
      page.zoom(Math.exp(event.deltaY * 0.0022), placeAt(main.at(event).x));
    }
  }, { passive: false });

  // The overview: an edge is dragged, the middle is moved, anywhere else a new part is drawn.
  let grip = null;
  overview.canvas.addEventListener("pointerdown", (event) => {
    const { x } = overview.at(event);
    const [a, b] = [fullX(page.from), fullX(page.to)];
    const what = Math.abs(x - a) < 7 ? "from" : Math.abs(x - b) < 7 ? "to" : x > a && x < b && b - a < inner(overview) - 2 ? "move" : "new";
    grip = { what, x, from: page.from, to: page.to };
    overview.canvas.setPointerCapture(event.pointerId);
  });
  overview.canvas.addEventListener("pointermove", (event) => {
    const { x } = overview.at(event);
    if (!grip) return;
    const at = fullPlace(x), begun = fullPlace(grip.x);
    if (grip.what === "from") page.show(Math.min(at, grip.to), grip.to);
    else if (grip.what === "to") page.show(grip.from, Math.max(at, grip.from));
    else if (grip.what === "move") page.show(grip.from + at - begun, grip.to + at - begun);
    else if (Math.abs(x - grip.x) > 3) page.show(Math.min(at, begun), Math.max(at, begun));
  });
  overview.canvas.addEventListener("pointerup", () => { grip = null; });
  overview.canvas.addEventListener("pointercancel", () => { grip = null; });
  overview.canvas.addEventListener("dblclick", () => page.show(...page.full));
  return self;
}
