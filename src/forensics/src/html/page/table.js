// The table of holders: one row a group of the chosen grouping, with what it holds at the cursor and at the peak.

function makeTable(page) {
  const { journal } = page;
  const self = { dirty: true };
  const table = byId("table"), body = table.tBodies[0];
  const columns = [
    { key: "name", text: () => page.groupingName, words: true },
    { key: "more", text: () => (page.grouping === "line" ? "Most by op" : "Most by line"), words: true },
    { key: "now", text: () => "At cursor", title: "Bytes live at the cursor" },
    { key: "blocks", text: () => "Blocks", title: "Blocks live at the cursor" },
    { key: "peak", text: () => "At peak", title: "Bytes live when most was live" },
    { key: "largest", text: () => "Largest", title: "Largest single block" },
    { key: "count", text: () => "Allocations", title: "Allocations in the events of this page" },
    { key: "turnover", text: () => "Allocated", title: "Bytes allocated in all" },
  ];
  let rows = [], sort = "now", down = true, wanted = "", limit = journal.facts.rows, rowOf = new Int32Array(0), drawn = [];

  /** Gathers what does not change with the cursor. */
  self.choose = () => {
    const { holders } = journal.facts;
    const byKey = new Map();
    rows = [];
    rowOf = new Int32Array(holders.length).fill(-1);
    holders.forEach((holder, number) => {
      if (!page.shown[number]) return;
      const key = holder[page.grouping];
      if (!byKey.has(key)) {
        byKey.set(key, rows.length);
        const group = page.groupOf[number];
        rows.push({ key, name: page.labelOf(holder), more: "", group, now: 0, blocks: 0, peak: 0, largest: 0, count: 0, turnover: 0, others: new Map() });
      }
      rowOf[number] = byKey.get(key);
    });
    for (let block = 0; block < journal.blocks; block++) {
      const row = rows[rowOf[journal.holder[block]]];
      if (!row) continue;
      row.largest = Math.max(row.largest, journal.allocated[block]);
      if (journal.birth[block] > 0) {
        row.count++;
        row.turnover += journal.allocated[block];
      }
      const other = holders[journal.holder[block]][page.grouping === "line" ? "op" : "line"];
      row.others.set(other, (row.others.get(other) ?? 0) + journal.allocated[block]);
    }
    const peak = page.liveAtPeak();
    holders.forEach((_, number) => { if (rowOf[number] >= 0) rows[rowOf[number]].peak += peak.bytes[number]; });
    for (const row of rows) {
      let best = 0;
      for (const [other, bytes] of row.others) if (bytes > best && journal.text(other)) [best, row.more] = [bytes, journal.text(other)];
      row.found = `${row.name} ${row.more}`.toLowerCase();
      delete row.others;
    }
    head();
    self.dirty = true;
  };

  function head() {
    const cells = columns.map((column) => {
      const on = column.key === sort;
      const button = make("button", { type: "button", title: column.title ?? false, onclick: () => sortBy(column) },
        column.text(), make("span", { "aria-hidden": "true" }, on ? (down ? " ↓" : " ↑") : ""));
      return make("th", { scope: "col", class: column.words ? "words" : "", "data-column": column.key, "aria-sort": on ? (down ? "descending" : "ascending") : "none" }, button);
    });
    const held = table.tHead.contains(document.activeElement) ? document.activeElement.closest("th")?.dataset.column : null;
    table.tHead.replaceChildren(make("tr", {}, ...cells));
    if (held) table.tHead.querySelector(`[data-column=${held}] button`)?.focus();
  }

  function sortBy(column) {
    [sort, down] = column.key === sort ? [sort, !down] : [column.key, !column.words];
    head();
    self.dirty = true;
    page.paint();
  }

  self.draw = () => {
    for (const row of rows) row.now = row.blocks = 0;
    const { live } = page;
    for (let number = 0; number < rowOf.length; number++) {
      const row = rows[rowOf[number]];
      if (!row) continue;
      row.now += live.bytes[number];
      row.blocks += live.blocks[number];
    }
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => words.every((word) => row.found.includes(word)));
    const sign = down ? -1 : 1;
    found.sort((a, b) => (typeof a[sort] === "string" ? sign * a[sort].localeCompare(b[sort]) : sign * (a[sort] - b[sort])) || b.peak - a.peak);
    const seen = found.slice(0, limit);
    while (drawn.length < seen.length) drawn.push(makeRow());
    seen.forEach((row, place) => drawn[place].fill(row));
    if (body.children.length !== seen.length) body.replaceChildren(...drawn.slice(0, seen.length).map((one) => one.element));
    const sum = found.reduce((all, row) => all + row.now, 0);
    byId("table-note").textContent = `${countText(found.length)} of ${countText(rows.length)} · ${bytesText(sum)} at the cursor`;
    byId("more").hidden = found.length <= limit;
    byId("more").textContent = `Show ${countText(Math.min(500, found.length - limit))} more`;
  };

  /** A row that is made once and filled again and again: scrubbing must not rebuild the table. */
  function makeRow() {
    const cells = columns.map((column) => make("td", { class: column.words ? "words" : "" }));
    const swatch = make("i", { class: "swatch" }), name = make("button", { type: "button", class: "name" }), edit = make("a", { class: "edit" });
    cells[0].append(swatch, name, edit);
    const element = make("tr", {}, ...cells);
    let mine = null;
    name.addEventListener("click", () => page.toggleFocus(mine.group));
    const put = (cell, text) => { if (cell.textContent !== text) cell.textContent = text; };
    return {
      element,
      fill(row) {
        mine = row;
        put(name, row.name);
        name.title = row.name;
        const link = page.linkOf(page.grouping === "line" ? row.name : row.more);
        edit.hidden = !link;
        if (link) Object.assign(edit, link, { ariaLabel: link.title });
        swatch.style.background = page.colours[row.group] ?? "";
        put(cells[1], row.more);
        cells[1].title = row.more;
        put(cells[2], bytesText(row.now));
        put(cells[3], countText(row.blocks));
        put(cells[4], bytesText(row.peak));
        put(cells[5], bytesText(row.largest));
        put(cells[6], countText(row.count));
        put(cells[7], bytesText(row.turnover));
        element.classList.toggle("idle", row.now === 0);
        element.classList.toggle("chosen", page.focus === row.group);
        name.setAttribute("aria-pressed", page.focus === row.group);
      },
    };
  }

  byId("search").addEventListener("input", (event) => {
    wanted = event.target.value;
    limit = journal.facts.rows;
    self.dirty = true;
    page.paint();
  });
  byId("more").addEventListener("click", () => {
    limit += 500;
    self.dirty = true;
    page.paint();
  });
  return self;
}
