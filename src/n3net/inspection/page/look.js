// @ts-check
import { selectWeights } from "./selection.js";

/**
 * What the blocks of a network choose by on an image; made by n3net.inspection.exploring.explore.
 * @typedef {{
 *   k: number, rule: string, update: string, rows: number, cols: number, cell: number, patch: number, window: number,
 *   border: string, pads: number[], distances: number, scale: number, inverse: number,
 * }} Block
 * @typedef {{title: string, width: number, height: number, sigma: number | null, blocks: Block[]}} LookHead
 * @typedef {Float32Array | Uint8Array} Values
 * @typedef {"tempered" | "untempered" | "hard"} Form the paper's, that of 2018, and the nearest neighbours themselves
 */

const LOOK_MAGIC = "n3net-look 1\n";

export class Look {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const start = LOOK_MAGIC.length;
    const magic = new TextDecoder().decode(new Uint8Array(buffer, 0, start));
    if (magic !== LOOK_MAGIC) throw new Error("not a file that n3net inspect wrote");
    const length = Number(new DataView(buffer, start, 8).getBigUint64(0, true));
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, start + 8, length)));
    /** @type {LookHead} */
    this.head = head;
    /** @type {Values[]} */
    this.arrays = head.arrays.map((/** @type {{start: number, shape: number[], type: string}} */ place) => {
      const Kind = place.type === "float32" ? Float32Array : Uint8Array;
      return new Kind(buffer, start + 8 + length + place.start, place.shape.reduce((a, b) => a * b, 1));
    });
  }

  /** The image before and after the network, RGB. */
  get before() {
    return /** @type {Uint8Array} */ (this.arrays[0]);
  }

  get after() {
    return /** @type {Uint8Array} */ (this.arrays[1]);
  }

  /** @param {number} b @param {"distances" | "scale" | "inverse"} name @returns {Values} */
  of(b, name) {
    return this.arrays[this.head.blocks[b][name]];
  }

  /** 1 / scale of each patch, row by row. @param {number} b */
  temperatures(b) {
    return Float32Array.from(this.of(b, "scale"), (scale) => 1 / scale);
  }

  /**
   * Row and column of the patch whose centre is nearest to a pixel.
   * @param {number} b @param {number} x @param {number} y
   * @returns {[number, number]}
   */
  queryAt(b, x, y) {
    const { cell, patch, pads, rows, cols } = this.head.blocks[b];
    const place = (/** @type {number} */ at, /** @type {number} */ pad, /** @type {number} */ count) =>
      Math.min(Math.max(Math.round((at + pad - (cell * patch) / 2) / cell), 0), count - 1);
    return [place(y, pads[2], rows), place(x, pads[0], cols)];
  }

  /** Left and top pixel of a patch. @param {number} b @param {number} row @param {number} col */
  corner(b, row, col) {
    const { cell, pads } = this.head.blocks[b];
    return [col * cell - pads[0], row * cell - pads[2]];
  }

  /** First row and column of the patches in the window of a query. @param {number} b @param {number} row @param {number} col */
  windowOf(b, row, col) {
    const { window, border, rows, cols } = this.head.blocks[b];
    const first = (/** @type {number} */ at, /** @type {number} */ count) => {
      const start = at - Math.floor(window / 2);
      return border === "clip" ? start : Math.min(Math.max(start, 0), Math.max(count - window, 0));
    };
    return [first(row, rows), first(col, cols)];
  }

  /**
   * Weights of a patch's k neighbours over its window.
   * @param {number} b @param {number} row @param {number} col
   * @param {{form: Form, factor: number}} how factor multiplies the temperature
   */
  weights(b, row, col, { form, factor }) {
    const { k, cols, window } = this.head.blocks[b];
    const query = row * cols + col;
    const slots = window * window;
    const distances = this.of(b, "distances").subarray(query * slots, (query + 1) * slots);
    const inverse = this.of(b, "inverse")[query] / factor;
    return selectWeights(distances, k, {
      scale: this.of(b, "scale")[query] / factor,
      strength: form === "tempered" ? inverse : 1,
      rule: form === "hard" ? "hard" : "continuous",
    });
  }
}
