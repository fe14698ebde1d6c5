// Flame graph of the live set, widest first: the user's Python frames from the outside in, then the operation; frames of
// libraries only where there are no others, native ones where neither is known. The tree is built once; a moment only changes the widths.

/** Height of a frame: taller when there are few. */
const FRAME_LEAST = 21, FRAME_MOST = 32;

function makeFlame(page) {
  const on = surface("flame", 304);
  const { journal } = page;
  const { stacks, holders } = journal.facts;
  const self = { dirty: true, of: "cursor" };

  // Nodes are in the order of their making, so that parents come before children.
  const nodes = [{ parent: -1, text: "", kind: -1, depth: 0, children: new Map(), bytes: 0 }];
  const leafOf = holders.map((holder) => {
    let at = 0;
    const users = stacks[holder.stack].some((frame) => frame % 4 === FRAME_PYTHON);
    for (const frame of stacks[holder.stack]) {
      if (users && frame % 4 === FRAME_LIBRARY) continue;
      const { children, depth } = nodes[at];
      let next = children.get(frame);
      if (next === undefined) {
        next = nodes.length;
        nodes.push({ parent: at, text: journal.text(Math.floor(frame / 4)), kind: frame % 4, depth: depth + 1, children: new Map(), bytes: 0 });
        children.set(frame, next);
      }
      at = next;
    }
    return at;
  });
  let frameHeight = FRAME_LEAST, root = 0, boxes = [], under = -1, focused = -1, depths = 1;

  self.resize = () => {
    on.fit();
    self.dirty = true;
  };

  function weigh(live) {
    for (const node of nodes) node.bytes = 0;
    for (let holder = 0; holder < holders.length; holder++) nodes[leafOf[holder]].bytes += live.bytes[holder];
    for (let at = nodes.length - 1; at > 0; at--) nodes[nodes[at].parent].bytes += nodes[at].bytes;
  }

  const label = (at) => {
    const { text, kind } = nodes[at];
    if (at === 0) return "all";
    if (kind !== FRAME_PYTHON && kind !== FRAME_LIBRARY) return text;
    // "function path:line": the path's last part is enough here, the tip has it whole.
    const [, name, path] = text.match(/^(\S*) ([\s\S]*)$/) ?? [0, "", text];
    return `${name}  ${path.slice(path.lastIndexOf("/") + 1)}`;
  };

  function place() {
    boxes = [];
    depths = 1;
    const total = nodes[root].bytes;
    if (!total) return;
    const scale = on.width / total;
    // Ancestors stay on top, as wide as the window, so that one can go back.
    const line = [];
    for (let at = root; at >= 0; at = nodes[at].parent) line.unshift(at);
    line.forEach((at, depth) => boxes.push({ at, x: 0, w: on.width, depth, above: depth < line.length - 1 }));
    const open = [[root, 0, line.length - 1]];
    while (open.length) {
      const [at, x, depth] = open.pop();
      let next = x;
      const children = [...nodes[at].children.values()].sort((a, b) => nodes[b].bytes - nodes[a].bytes);
      for (const child of children) {
        const w = nodes[child].bytes * scale;
        if (w < 0.4) break;
        boxes.push({ at: child, x: next, w, depth: depth + 1 });
        depths = Math.max(depths, depth + 2);
        open.push([child, next, depth + 1]);
        next += w;
      }
    }
  }

  /** A calm tone by kind, a little lighter or darker by name. */
  function tone(at) {
    const { text, kind } = nodes[at];
    let hash = 7;
    for (let place = 0; place < Math.min(text.length, 64); place++) hash = (hash * 31 + text.charCodeAt(place)) | 0;
    const shift = (((hash >>> 3) % 100) / 100 - 0.5) * 10;
    const [hue, strength, light] = page.ink.flame[kind < 0 ? 3 : kind === FRAME_LIBRARY ? FRAME_PYTHON : kind];
    return `hsl(${hue + shift} ${strength}% ${light + shift * 0.7}%)`;
  }

  self.draw = () => {
    weigh(self.of === "peak" ? page.liveAtPeak() : page.live);
    if (!nodes[root].bytes) root = 0;
    on.fit(on.height); // the width may have changed
    place();
    const room = innerWidth < 700 ? 170 : 304;
    frameHeight = Math.max(FRAME_LEAST, Math.min(FRAME_MOST, Math.floor(room / depths)));
    const wanted = Math.min(560, Math.max(room, depths * frameHeight + 2));
    if (wanted !== on.height) {
      on.fit(wanted);
      place();
    }
    on.begin();
    const { pen } = on;
    pen.font = page.font;
    pen.textBaseline = "middle";
    if (!boxes.length) {
      pen.fillStyle = page.ink.soft;
      pen.fillText("Nothing is live here.", 4, 20);
    }
    for (const box of boxes) {
      const y = box.depth * frameHeight;
      pen.globalAlpha = box.above ? 0.55 : 1;
      pen.fillStyle = tone(box.at);
      pen.fillRect(box.x, y, Math.max(0.6, box.w - 1), frameHeight - 1);
      if (box.at === under || box.at === focused) {
        pen.strokeStyle = page.ink.cursor;
        pen.lineWidth = 2;
        pen.strokeRect(box.x + 1, y + 1, Math.max(1, box.w - 3), frameHeight - 3);
      }
      pen.fillStyle = page.ink.flameText;
      const text = fitted(pen, box.w > 120 ? `${label(box.at)}  ${bytesText(nodes[box.at].bytes)}` : label(box.at), box.w - 10);
      if (text) pen.fillText(text, box.x + 5, y + frameHeight / 2);
      pen.globalAlpha = 1;
    }
    on.canvas.setAttribute("aria-label", `Flame graph of ${bytesText(nodes[0].bytes)}, ${boxes.length} frames`);
    if (focused < 0) say(root);
  };

  function say(at) {
    const all = nodes[0].bytes || 1;
    byId("flame-note").textContent = at <= 0
      ? `${bytesText(nodes[0].bytes)} live ${self.of === "peak" ? "at the peak" : "at the cursor"}. Click a frame to look into it.`
      : `${nodes[at].text}: ${bytesText(nodes[at].bytes)}, ${((100 * nodes[at].bytes) / all).toFixed(1)} %`;
  }

  const boxUnder = (event) => {
    const { x, y } = on.at(event);
    const depth = Math.floor(y / frameHeight);
    return boxes.find((box) => box.depth === depth && x >= box.x && x < box.x + box.w);
  };
  const look = (at) => {
    root = at;
    self.dirty = true;
    page.paint();
  };
  on.canvas.addEventListener("pointermove", (event) => {
    const box = boxUnder(event);
    const now = box ? box.at : -1;
    on.canvas.style.cursor = box ? "pointer" : "default";
    if (box) {
      const share = ((100 * nodes[now].bytes) / (nodes[0].bytes || 1)).toFixed(1);
      tip.show(event, now ? nodes[now].text : "all that is live", [["live", `${bytesText(nodes[now].bytes)}  ${share} %`]]);
    } else {
      tip.hide();
    }
    if (now !== under) {
      under = now;
      self.dirty = true;
      page.paint();
    }
  });
  on.canvas.addEventListener("pointerleave", () => {
    under = -1;
    tip.hide();
    self.dirty = true;
    page.paint();
  });
  on.canvas.addEventListener("click", (event) => {
    const box = boxUnder(event);
    if (box) look(box.at === root ? Math.max(0, nodes[root].parent) : box.at);
  });
  on.canvas.addEventListener("keydown", (event) => {
    const at = boxes.findIndex((box) => box.at === focused);
    const box = boxes[at] ?? boxes[0];
    if (!box) return;
    const beside = (step) => boxes.filter((other) => other.depth === box.depth).sort((a, b) => a.x - b.x)
      .find((other, place, row) => row[place - step] === box);
    let next = null;
    if (event.key === "ArrowDown") next = boxes.find((other) => nodes[other.at].parent === box.at && other.depth === box.depth + 1);
    else if (event.key === "ArrowUp") next = boxes.find((other) => other.at === nodes[box.at].parent);
    else if (event.key === "ArrowRight") next = beside(1);
    else if (event.key === "ArrowLeft") next = beside(-1);
    else if (event.key === "Enter" || event.key === " ") return event.preventDefault(), look(box.at);
    else if (event.key === "Escape") return (focused = -1), look(0);
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (next || at < 0) {
      focused = (at < 0 ? box : next).at;
      say(focused);
      self.dirty = true;
      page.paint();
    }
  });
  on.canvas.addEventListener("blur", () => {
    focused = -1;
    self.dirty = true;
    page.paint();
  });
  self.choose = () => {
    root = 0;
    self.dirty = true;
  };
  return self;
}
