// The address space at the cursor: the stretches in which blocks ever were, laid out in rows, every live block where
// it is. A pixel that holds many small blocks is as strong as it is full. Ctrl+wheel and drag look closer.

const ROW = 15, ROW_GAP = 4;

function makeAddressMap(page) {
  const on = surface("address", 300);
  const { journal } = page;
  const self = { dirty: true };
  const mapped = [];
  for (let block = 0; block < journal.blocks; block++) {
    if (journal.facts.mapped_known && journal.facts.holders[journal.holder[block]].kind === "mapped") mapped.push(block);
  }
  let segments = [], starts = [], length = 1, from = 0, span = 1, holesTimer = 0;
  const rows = () => Math.floor(on.height / (ROW + ROW_GAP));

  self.resize = () => {
    on.fit(innerWidth < 700 ? 228 : 304);
    self.dirty = true;
  };

  /** Takes the segments of the chosen device. */
  self.choose = () => {
    segments = page.deviceFacts?.segments ?? [];
    starts = [];
    length = 0;
    for (const [, size] of segments) {
      starts.push(length);
      length += size;
    }
    length = Math.max(length, 1);
    [from, span] = [0, length];
    self.dirty = true;
  };

  /** The place of an address in the row of segments, or -1. */
  function placeOf(address) {
    let [low, high] = [0, segments.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle][0] <= address) low = middle;
      else high = middle - 1;
    }
    const segment = segments[low];
    return segment && address >= segment[0] && address < segment[0] + segment[1] ? starts[low] + address - segment[0] : -1;
  }

  function channels(colour) {
    const value = parseInt(colour.slice(1), 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }

  self.draw = () => {
    on.begin();
    const { pen } = on;
    const lines = rows();
    const across = Math.max(1, Math.round(on.width * on.scale));
    const pixels = across * lines;
    const perPixel = span / pixels;
    const full = new Float32Array(pixels), group = new Uint8Array(pixels).fill(HIDDEN), strongest = new Float32Array(pixels);
    const edge = new Uint8Array(pixels);
    const { list } = page.live;
    // Where memory is mapped and free the ground is darker than where there is only address space.
    const ground = new Uint8Array(pixels);
    for (const block of mapped) {
      if (journal.birth[block] > page.cursor || journal.death[block] <= page.cursor) continue;
      const start = placeOf(journal.address[block]);
      if (start < 0) continue;
      ground.fill(1, Math.max(0, Math.round((start - from) / perPixel)), Math.max(0, Math.round((start + journal.allocated[block] - from) / perPixel)));
    }
    for (let place = 0; place < list.length; place++) {
      const block = list[place];
      if (page.levels.groupOf[block] === HIDDEN) continue;
      const start = placeOf(journal.address[block]);
      if (start < 0) continue;
      let a = (start - from) / perPixel, b = (start + journal.allocated[block] - from) / perPixel;
      if (b <= 0 || a >= pixels) continue;
      a = Math.max(0, a);
      b = Math.min(pixels, b);
      const of = page.levels.groupOf[block];
      for (let pixel = Math.floor(a); pixel < b; pixel++) {
        const share = Math.min(b, pixel + 1) - Math.max(a, pixel);
        full[pixel] += share;
        if (share > strongest[pixel]) {
          strongest[pixel] = share;
          group[pixel] = of;
        }
      }
      // A wide block ends with a seam, so that adjacent blocks can be distinguished.
      if (b - a > 4 * on.scale) edge[Math.min(pixels - 1, Math.ceil(b) - 1)] = 1;
    }
    const colours = page.colours.map(channels);
    const empty = channels(page.ink.hole), behind = channels(page.ink.mapped), card = channels(page.ink.card);
    const tall = Math.round(ROW * on.scale), pitch = Math.round((ROW + ROW_GAP) * on.scale);
    const image = pen.createImageData(across, 1);
    const strip = document.createElement("canvas");
    strip.width = across;
    strip.height = 1;
    const stripPen = strip.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.imageSmoothingEnabled = false;
    for (let row = 0; row < lines; row++) {
      for (let x = 0; x < across; x++) {
        const pixel = row * across + x;
        const inside = from + pixel * perPixel < length;
        let [r, g, b] = !inside ? card : ground[pixel] ? behind : empty;
        if (group[pixel] !== HIDDEN) {
          const of = group[pixel];
          const faint = page.focus !== null && page.focus !== of ? 0.25 : 1;
          const share = Math.min(1, full[pixel]) * faint * (edge[pixel] ? 0.55 : 1);
          const tone = colours[of];
          r += (tone[0] - r) * share;
          g += (tone[1] - g) * share;
          b += (tone[2] - b) * share;
        }
        image.data[x * 4] = r;
        image.data[x * 4 + 1] = g;
        image.data[x * 4 + 2] = b;
        image.data[x * 4 + 3] = 255;
      }
      stripPen.putImageData(image, 0, 0);
      pen.drawImage(strip, 0, 0, across, 1, 0, row * pitch, across, tall);
    }
    // Where one stretch ends and the next begins, addresses are not neighbours.
    pen.setTransform(on.scale, 0, 0, on.scale, 0, 0);
    pen.fillStyle = page.ink.text;
    for (const start of starts.slice(1)) {
      const pixel = (start - from) / perPixel;
      if (pixel < 0 || pixel >= pixels) continue;
      const row = Math.floor(pixel / across);
      pen.fillRect((pixel - row * across) / on.scale - 0.75, row * (ROW + ROW_GAP) - 1, 1.5, ROW + 2);
    }
    byId("address-key").hidden = !mapped.length;
    const shown = span < length ? `${bytesText(span)} of ${bytesText(length)}` : bytesText(length);
    const count = `${countText(list.length)} live block${list.length === 1 ? "" : "s"}`;
    byId("address-note").textContent = `${count} in ${shown} of addresses, ${segments.length} stretch${segments.length === 1 ? "" : "es"}`;
    on.canvas.setAttribute("aria-label", `Address space ${page.momentText(page.cursor)}: ${byId("address-note").textContent}`);
    clearTimeout(holesTimer);
    holesTimer = setTimeout(sayHoles, 90);
  };

  /** The free room between live blocks; sorted only when the cursor rests. */
  function sayHoles() {
    const order = Array.from(page.live.list).filter((block) => page.levels.groupOf[block] !== HIDDEN);
    order.sort((a, b) => journal.address[a] - journal.address[b]);
    let gaps = 0, room = 0, largest = 0, end = -1, at = -1;
    for (const block of order) {
      const start = journal.address[block];
      const place = placeOf(start);
      const segment = place < 0 ? -1 : lastAtMost(starts, place);
      if (segment === at && segment >= 0 && start > end) {
        gaps++;
        room += start - end;
        largest = Math.max(largest, start - end);
      }
      end = segment === at ? Math.max(end, start + journal.allocated[block]) : start + journal.allocated[block];
      at = segment;
    }
    byId("address-holes").textContent = gaps
      ? `${countText(gaps)} gap${gaps === 1 ? "" : "s"} between blocks: ${bytesText(room)} in all, the largest ${bytesText(largest)}`
      : "No gaps between blocks.";
  }

  function blockUnder(event) {
    const { x, y } = on.at(event);
    const row = Math.floor(y / (ROW + ROW_GAP));
    const place = from + ((row * on.width + x) / (on.width * rows())) * span;
    const reach = span / (on.width * rows());
    let best = -1, nearest = Infinity;
    for (const block of page.live.list) {
      if (page.levels.groupOf[block] === HIDDEN) continue;
      const start = placeOf(journal.address[block]);
      if (start < 0) continue;
      const away = place < start ? start - place : place >= start + journal.allocated[block] ? place - start - journal.allocated[block] : 0;
      if (away < nearest) [best, nearest] = [block, away];
      if (away === 0) break;
    }
    return nearest <= reach ? best : -1;
  }

  let drag = null;
  on.canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const { x, y } = on.at(event);
      const by = ((drag.y - y) / (ROW + ROW_GAP) + (drag.x - x) / on.width) / rows();
      look(drag.from + by * span, span);
      return;
    }
    const block = blockUnder(event);
    on.canvas.style.cursor = block < 0 ? "default" : "pointer";
    if (block < 0) return tip.hide();
    const holder = journal.facts.holders[journal.holder[block]];
    const lines = [["size", bytesText(journal.allocated[block])]];
    if (journal.slack[block]) lines.push(["requested", bytesText(journal.allocated[block] - journal.slack[block])]);
    if (journal.text(holder.tensor)) lines.push(["tensor", journal.text(holder.tensor)]);
    lines.push(["address", "0x" + journal.address[block].toString(16)], ["line", journal.text(holder.line) || "unknown"],
      ["class", journal.text(holder.class)],
      ["since", journal.birth[block] ? page.momentText(journal.birth[block]) : "before the first event here"]);
    tip.show(event, journal.text(holder.op) || journal.text(holder.line) || journal.text(holder.class), lines, page.stackOf(holder));
  });
  on.canvas.addEventListener("pointerdown", (event) => {
    if (span >= length) return;
    drag = { ...on.at(event), from };
    on.canvas.setPointerCapture(event.pointerId);
  });
  on.canvas.addEventListener("pointerup", () => { drag = null; });
  on.canvas.addEventListener("pointerleave", () => tip.hide());
  on.canvas.addEventListener("click", (event) => {
    const block = blockUnder(event);
    if (block >= 0) page.toggleFocus(page.levels.groupOf[block]);
  });
  on.canvas.addEventListener("dblclick", () => look(0, length));
  on.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { x, y } = on.at(event);
    const share = (Math.floor(y / (ROW + ROW_GAP)) + x / on.width) / rows();
    const wanted = Math.min(length, Math.max(4096, span * Math.exp(event.deltaY * 0.0022)));
    look(from + (span - wanted) * share, wanted);
  }, { passive: false });
  on.canvas.addEventListener("keydown", (event) => {
    const middle = from + span / 2;
    if (event.key === "+" || event.key === "=") look(middle - span / 4, span / 2);
    else if (event.key === "-") look(middle - span, span * 2);
    else if (event.key === "0") look(0, length);
    else if (event.key === "ArrowDown") look(from + span / rows(), span);
    else if (event.key === "ArrowUp") look(from - span / rows(), span);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  function look(start, size) {
    span = Math.min(length, Math.max(4096, size));
    from = Math.max(0, Math.min(length - span, start));
    self.dirty = true;
    page.paint();
  }
  return self;
}
