// Unpacks the journal: columns of numbers become typed arrays, and blocks get their first and last moments.
//
// A moment is a number from 0 to the number of entries: moment m is the state after m entries. A block is live at
// moments m with birth <= m < death.

/** Numbers of seven bits a byte, as pack.rs writes them. */
function unpackColumn(bytes, start, column) {
  const numbers = new Float64Array(column.count);
  const delta = column.coding === "delta";
  let at = start, last = 0;
  for (let place = 0; place < column.count; place++) {
    let byte = bytes[at++];
    let value = byte & 127;
    if (byte > 127) {
      let factor = 128;
      do {
        byte = bytes[at++];
        value += (byte & 127) * factor;
        factor *= 128;
      } while (byte > 127);
    }
    if (delta) {
      // Zigzag: even numbers count up, odd ones down.
      last += value % 2 === 0 ? value / 2 : -(value + 1) / 2;
      numbers[place] = last;
    } else {
      numbers[place] = value;
    }
  }
  return numbers;
}

async function inflate(text) {
  let packed;
  if (Uint8Array.fromBase64) {
    packed = Uint8Array.fromBase64(text);
  } else {
    const raw = atob(text);
    packed = new Uint8Array(raw.length);
    for (let place = 0; place < raw.length; place++) packed[place] = raw.charCodeAt(place);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function openJournal() {
  const facts = JSON.parse(byId("facts").textContent);
  const bytes = await inflate(byId("columns").textContent.trim());
  byId("columns").remove();
  const columns = {};
  let start = 0;
  for (const column of facts.columns) {
    columns[column.name] = unpackColumn(bytes, start, column);
    start += column.bytes;
  }
  const count = columns["entry.time"].length;
  const change = columns["entry.change"];
  const blocks = columns["block.allocated"].length;
  const birth = new Int32Array(blocks);
  const death = new Int32Array(blocks).fill(count + 1);
  // Which block each moment brought (place + 1), ended (-(place + 1)), or neither (0).
  const step = new Int32Array(count + 1);
  let next = facts.before;
  for (let entry = 0; entry < count; entry++) {
    const what = change[entry];
    if (what === 1) {
      birth[next] = entry + 1;
      step[entry + 1] = ++next;
    } else if (what > 1) {
      const block = next - (what - 1);
      death[block] = entry + 1;
      step[entry + 1] = -(block + 1);
    }
  }
  // The time of a moment is that of its entry; moment 0 has that of the first one.
  const time = new Float64Array(count + 1);
  time.set(columns["entry.time"], 1);
  time[0] = count ? time[1] : 0;
  const past = { device: columns["past.device"], time: columns["past.time"], bytes: columns["past.bytes"] };
  return {
    facts, count, blocks, birth, death, step, time, past,
    seq: columns["entry.seq"],
    address: columns["block.address"],
    allocated: columns["block.allocated"],
    slack: columns["block.slack"],
    holder: Uint32Array.from(columns["block.holder"]),
    host: { time: columns["host.time"], resident: columns["host.resident"], pinned: columns["host.pinned"] },
    text: (number) => facts.texts[number],
  };
}

/** The last place in a sorted array whose value is at most this; 0 when there is none. */
function lastAtMost(sorted, value) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** What is live at a moment: the blocks that `shown` (by holder) lets through, and sums by holder. */
function liveAt(journal, moment, shown) {
  const { birth, death, holder, allocated, blocks } = journal;
  const holders = journal.facts.holders.length;
  const live = { moment, list: new Uint32Array(0), bytes: new Float64Array(holders), blocks: new Uint32Array(holders), total: 0 };
  let list = new Uint32Array(1024), count = 0;
  for (let block = 0; block < blocks; block++) {
    if (birth[block] > moment) break; // blocks are in the order of their births
    if (death[block] <= moment) continue;
    const by = holder[block];
    if (!shown[by]) continue;
    if (count === list.length) {
      const wider = new Uint32Array(count * 2);
      wider.set(list);
      list = wider;
    }
    list[count++] = block;
    live.bytes[by] += allocated[block];
    live.blocks[by]++;
    live.total += allocated[block];
  }
  live.list = list.subarray(0, count);
  return live;
}
