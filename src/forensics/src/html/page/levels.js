// Levels of detail. A million events are looked at once, when the grouping changes; after that any window is drawn
// from what was prepared here: the total at every moment, the highest moment of every stretch, and the sums of all
// groups at every 64th moment.

const STRIDE = 64;
/** Moments under one entry of a level of the pyramid. */
const FAN = 16;
const HIDDEN = 255;

class Levels {
  /** `groupOf` gives the group of every holder, or HIDDEN. */
  constructor(journal, groupOf, groups) {
    const { step, allocated, holder, count, blocks, birth } = journal;
    this.journal = journal;
    this.groups = groups;
    this.groupOf = new Uint8Array(blocks);
    for (let block = 0; block < blocks; block++) this.groupOf[block] = groupOf[holder[block]];
    this.total = new Float64Array(count + 1);
    this.marks = new Float64Array((Math.floor(count / STRIDE) + 1) * groups);
    const sums = new Float64Array(groups);
    for (let block = 0; block < blocks && birth[block] === 0; block++) {
      if (this.groupOf[block] !== HIDDEN) sums[this.groupOf[block]] += allocated[block];
    }
    let total = 0;
    for (const sum of sums) total += sum;
    for (let moment = 0; moment <= count; moment++) {
      const what = step[moment];
      if (what !== 0) {
        const block = what > 0 ? what - 1 : -what - 1;
        const group = this.groupOf[block];
        if (group !== HIDDEN) {
          const bytes = what > 0 ? allocated[block] : -allocated[block];
          sums[group] += bytes;
          total += bytes;
        }
      }
      this.total[moment] = total;
      if (moment % STRIDE === 0) this.marks.set(sums, (moment / STRIDE) * groups);
    }
    this.pyramid = [];
    let below = null;
    for (let size = Math.ceil((count + 1) / FAN); ; size = Math.ceil(size / FAN)) {
      const level = new Uint32Array(size);
      for (let place = 0; place < size; place++) {
        let best = below ? below[place * FAN] : place * FAN;
        const end = Math.min((place + 1) * FAN, below ? below.length : count + 1);
        for (let other = place * FAN + 1; other < end; other++) {
          const moment = below ? below[other] : other;
          if (this.total[moment] > this.total[best]) best = moment;
        }
        level[place] = best;
      }
      this.pyramid.push(level);
      below = level;
      if (size <= 1) break;
    }
    this.peak = this.highest(0, count);
    // Where the walk of `sumsAt` stands.
    this.sums = new Float64Array(groups);
    this.position = -1;
  }

  /** The first moment with the highest total from `from` to `to`, both included. */
  highest(from, to) {
    let best = from;
    const better = (moment) => {
      const more = this.total[moment] - this.total[best];
      if (more > 0 || (more === 0 && moment < best)) best = moment;
    };
    let level = -1, low = from, high = to + 1;
    for (;;) {
      const next = this.pyramid[level + 1];
      const at = (place) => (level < 0 ? place : this.pyramid[level][place]);
      while (low < high && low % FAN !== 0) better(at(low++));
      while (low < high && (high % FAN !== 0 || !next)) better(at(--high));
      if (low >= high) return best;
      low /= FAN;
      high /= FAN;
      level++;
    }
  }

  /** Sums of the groups at a moment; the array is used again by the next call. */
  sumsAt(moment) {
    const { step, allocated } = this.journal;
    const mark = Math.floor(moment / STRIDE);
    if (this.position < mark * STRIDE || this.position > moment) {
      this.sums.set(this.marks.subarray(mark * this.groups, (mark + 1) * this.groups));
      this.position = mark * STRIDE;
    }
    while (this.position < moment) {
      const what = step[++this.position];
      if (what === 0) continue;
      const block = what > 0 ? what - 1 : -what - 1;
      const group = this.groupOf[block];
      if (group !== HIDDEN) this.sums[group] += what > 0 ? allocated[block] : -allocated[block];
    }
    return this.sums;
  }

  /** For each of `width` columns of a window the highest moment in it. `momentAt` maps a place to a moment. */
  columns(from, to, width, momentAt) {
    const moments = new Uint32Array(width);
    let left = momentAt(from);
    for (let x = 0; x < width; x++) {
      const right = Math.max(left, momentAt(from + ((to - from) * (x + 1)) / width));
      moments[x] = this.highest(left, right);
      left = right;
    }
    return moments;
  }
}
