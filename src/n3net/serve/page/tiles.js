// @ts-check
import { call, pixelsOf } from "./api.js";

const TILE = 512; // as the server cuts them
const KEPT = 240; // tiles of all pictures

/** A picture on the server, seen through tiles that are fetched when they come into view. */
export class Tiles {
  /**
   * @param {string} path of the picture on the server
   * @param {{width: number, height: number, levels: number}} size
   * @param {() => void} loaded is called when there is more to draw
   */
  constructor(path, { width, height, levels }, loaded) {
    this.path = path;
    this.width = width;
    this.height = height;
    this.levels = levels;
    this.loaded = loaded;
    /** @type {Map<string, HTMLCanvasElement | null>} null while it is fetched */
    this.tiles = new Map();
  }

  /**
   * Draw what is known of a part, and fetch the rest.
   * @param {CanvasRenderingContext2D} c whose transform goes from pixels of this picture to the canvas
   * @param {{left: number, top: number, right: number, bottom: number}} part in pixels of this picture
   * @param {number} zoom pixels of the screen for each of the picture
   */
  draw(c, part, zoom) {
    const wanted = Math.min(Math.max(Math.floor(Math.log2(1 / zoom) + 0.01), 0), this.levels - 1);
    for (let level = this.levels - 1; level >= wanted; level--) {
      if (level !== wanted && level !== this.levels - 1) continue; // the coarsest is always there
      const scale = 2 ** level;
      const side = TILE * scale;
      for (let row = Math.max(0, Math.floor(part.top / side)); row * side < Math.min(part.bottom, this.height); row++) {
        for (let col = Math.max(0, Math.floor(part.left / side)); col * side < Math.min(part.right, this.width); col++) {
          const tile = this.#tile(level, row, col);
          if (tile) c.drawImage(tile, col * side, row * side, tile.width * scale, tile.height * scale);
        }
      }
    }
  }

  /** Whether all of what was drawn last is there. */
  get complete() {
    return ![...this.tiles.values()].includes(null);
  }

  /** The whole picture, small; for lists. @returns {HTMLCanvasElement | null} */
  get small() {
    return this.#tile(this.levels - 1, 0, 0);
  }

  /** @param {number} level @param {number} row @param {number} col */
  #tile(level, row, col) {
    const key = `${level}/${row}/${col}`;
    const found = this.tiles.get(key);
    if (found === undefined) this.#fetch(key);
    else {
      this.tiles.delete(key); // the last used are kept
      this.tiles.set(key, found);
    }
    return found ?? null;
  }

  /** @param {string} key */
  async #fetch(key) {
    this.tiles.set(key, null);
    try {
      const canvas = await pixelsOf(await call("GET", `${this.path}/tiles/${key}`));
      if (canvas) this.tiles.set(key, canvas);
      else this.tiles.delete(key);
      while (this.tiles.size > KEPT) this.tiles.delete(/** @type {string} */ (this.tiles.keys().next().value));
      this.loaded();
    } catch {
      setTimeout(() => this.tiles.delete(key), 1000); // tried again when it is drawn again
    }
  }
}
