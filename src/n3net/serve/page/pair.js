// @ts-check
import { el } from "./dom.js";
import { Tiles } from "./tiles.js";

const GAP = 12;
const NEAR = 14; // CSS pixels

/** @param {number[][]} m @param {number[]} v */
const times = (m, v) => m.map((row) => row.reduce((sum, value, i) => sum + value * v[i], 0));

/** The inverse of [[f, s, x], [0, g, y], [0, 0, 1]]. @param {number[][]} k */
function inverseOf(k) {
  const [[f, s, x], [, g, y]] = k;
  return [[1 / f, -s / (f * g), (s * y - g * x) / (f * g)], [0, 1 / g, -y / g], [0, 0, 1]];
}

/** @param {number[][]} m */
const transposed = (m) => m[0].map((_, i) => m.map((row) => row[i]));

/** Two photographs beside each other and the matches between them. */
export class PairView {
  /** @param {any} found what n3net match writes to matches.json @param {Tiles[]} tiles of both photographs */
  constructor(found, tiles) {
    this.found = found;
    this.tiles = tiles;
    this.threshold = 0;
    this.agree = this.differ = true;
    /** @type {number} of the match that is pointed at, or -1 */
    this.active = -1;
    /** @type {number[]} matches, the best last */
    this.shown = [];
    this.agreeing = 0;
    this.told = el("p", { class: "told", role: "status" });
    this.canvas = el("canvas", { class: "pair", tabindex: "0", role: "application", "aria-label": "Both photographs and their matches. Left and right arrow go from match to match." });
    const scores = found.table.map((/** @type {any[]} */ row) => row[4] ?? 0);
    this.most = Math.max(1e-6, ...scores);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    document.documentElement.addEventListener("theme", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#activate(-1));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !this.shown.length) return;
      event.preventDefault();
      const at = this.shown.indexOf(this.active);
      this.#activate(this.shown[(at + step + this.shown.length) % this.shown.length]);
    });
    this.choose();
  }

  /** Which matches are shown: those that scored well enough, the best last. */
  choose() {
    const { table } = this.found;
    this.shown = Array.from(table.keys()).filter((i) => table[i][4] >= this.threshold && (table[i][6] ? this.agree : this.differ));
    this.shown.sort((a, b) => Number(table[a][6]) - Number(table[b][6]) || table[a][4] - table[b][4]);
    this.agreeing = this.shown.filter((i) => table[i][6]).length;
    this.draw();
  }

  /** Where the photographs lie: scale and left border of each, one height for both. */
  #layout() {
    const [a, b] = this.found.images;
    const width = this.canvas.clientWidth - GAP;
    const height = width / (a.width / a.height + b.width / b.height);
    const scales = [height / a.height, height / b.height];
    return { height, scales, lefts: [0, a.width * scales[0] + GAP] };
  }

  draw() {
    cancelAnimationFrame(this.frame ?? 0);
    this.frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const ratio = devicePixelRatio || 1;
    const { height, scales, lefts } = this.#layout();
    if (!(height > 0)) return;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(height * ratio);
    const c = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.tiles.forEach((tiles, i) => {
      const scale = (scales[i] * this.found.images[i].width) / tiles.width;
      c.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * lefts[i], 0);
      tiles.draw(c, { left: 0, top: 0, right: tiles.width, bottom: tiles.height }, scale * ratio);
    });
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = "rgb(0 0 0 / 25%)";
    c.fillRect(0, 0, this.canvas.clientWidth, height);
    const faint = Math.min(1, Math.max(0.1, 120 / this.shown.length)); // many lines must not hide the pictures
    for (const i of this.shown) this.#line(c, i, this.active === -1 ? 1 : 0.3, 1, faint);
    if (this.active >= 0) {
      this.#epipolar(c);
      this.#line(c, this.active, 1, 2.5);
    }
  }

  /** @param {number} i of a match @returns {[number, number][]} its points on the canvas */
  #points(i) {
    const { scales, lefts } = this.#layout();
    const [x0, y0, x1, y1] = this.found.table[i];
    return [[lefts[0] + x0 * scales[0], y0 * scales[0]], [lefts[1] + x1 * scales[1], y1 * scales[1]]];
  }

  /** @param {CanvasRenderingContext2D} c @param {number} i @param {number} alpha @param {number} [width] @param {number} [faint] of the line */
  #line(c, i, alpha, width = 1, faint = 1) {
    const row = this.found.table[i];
    const part = Math.min(Math.max(row[4] / this.most, 0), 1);
    const strong = alpha * (0.3 + 0.7 * part);
    c.globalAlpha = strong * faint;
    c.strokeStyle = c.fillStyle = row[6] ? "#4ade80" : "#ffb020";
    c.lineWidth = width;
    const [a, b] = this.#points(i);
    c.beginPath();
    c.moveTo(...a);
    c.lineTo(...b);
    c.stroke();
    c.globalAlpha = strong;
    for (const point of [a, b]) {
      c.beginPath();
      c.arc(...point, width + 1, 0, 2 * Math.PI);
      c.fill();
    }
    c.globalAlpha = 1;
  }

  /** The line in the other photograph on which the other point has to lie, for both points. @param {CanvasRenderingContext2D} c */
  #epipolar(c) {
    const { pose, images, table } = this.found;
    if (!pose || pose.motion === "rotation") return;
    const { scales, lefts } = this.#layout();
    const [x0, y0, x1, y1] = table[this.active];
    const inverses = images.map((/** @type {any} */ image) => inverseOf(image.K));
    const e = pose.essential;
    const lines = [
      times(transposed(inverses[0]), times(transposed(e), times(inverses[1], [x1, y1, 1]))),
      times(transposed(inverses[1]), times(e, times(inverses[0], [x0, y0, 1]))),
    ];
    lines.forEach(([a, b, d], i) => {
      const { width, height } = images[i];
      const ends = Math.abs(b) > Math.abs(a) ? [[0, -d / b], [width, -(d + a * width) / b]] : [[-d / a, 0], [-(d + b * height) / a, height]];
      c.save();
      c.beginPath();
      c.rect(lefts[i], 0, width * scales[i], height * scales[i]);
      c.clip();
      c.strokeStyle = "#7dd3fc";
      c.lineWidth = 2;
      c.setLineDash([6, 4]);
      c.beginPath();
      c.moveTo(lefts[i] + ends[0][0] * scales[i], ends[0][1] * scales[i]);
      c.lineTo(lefts[i] + ends[1][0] * scales[i], ends[1][1] * scales[i]);
      c.stroke();
      c.restore();
    });
  }

  /** @param {PointerEvent} event */
  #point(event) {
    let best = -1;
    let least = NEAR;
    for (const i of this.shown) {
      for (const [x, y] of this.#points(i)) {
        const apart = Math.hypot(x - event.offsetX, y - event.offsetY);
        if (apart < least) [best, least] = [i, apart];
      }
    }
    this.#activate(best);
  }

  /** @param {number} i */
  #activate(i) {
    if (i === this.active) return;
    this.active = i;
    const row = this.found.table[i];
    this.told.textContent = row ? `(${row[0].toFixed(1)}, ${row[1].toFixed(1)}) – (${row[2].toFixed(1)}, ${row[3].toFixed(1)}), score ${row[4].toFixed(2)}, ${row[6] ? "agrees with the pose" : "does not agree with the pose"}` : "";
    this.draw();
  }
}
