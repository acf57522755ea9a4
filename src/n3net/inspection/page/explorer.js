// @ts-check
import { Look } from "./look.js";

/** @typedef {import("./look.js").Form} Form */

const QUERY_COLOR = "#ff9f1c";
const NEIGHBOR_COLOR = "#35e0d0";
/** Colours from cold to hot, as in matplotlib's magma. */
const HEAT = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];
const FORMS = /** @type {[Form, string][]} */ ([
  ["tempered", "Paper"],
  ["untempered", "2018"],
  ["hard", "Hard KNN"],
]);
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @param {number} n */
const raised = (n) => String(n).replace(/\d/g, (digit) => SUPERSCRIPT[Number(digit)]);

/** @param {number} part of 0 to 1 */
function heat(part) {
  const at = Math.min(Math.max(part, 0), 1) * (HEAT.length - 1);
  const i = Math.min(Math.floor(at), HEAT.length - 2);
  return HEAT[i].map((a, c) => a + (HEAT[i + 1][c] - a) * (at - i));
}

/**
 * @param {Uint8Array} rgb @param {number} width @param {number} height
 * @returns {HTMLCanvasElement}
 */
function pictureOf(rgb, width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const pixels = new ImageData(width, height);
  for (let i = 0, j = 0; i < rgb.length; i += 3, j += 4) {
    pixels.data[j] = rgb[i];
    pixels.data[j + 1] = rgb[i + 1];
    pixels.data[j + 2] = rgb[i + 2];
    pixels.data[j + 3] = 255;
  }
  context(canvas).putImageData(pixels, 0, 0);
  return canvas;
}

/** @param {HTMLCanvasElement} canvas */
function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

const MARKUP = `
  <div class="explorer-view">
    <div class="explorer-stage">
      <canvas class="explorer-image" tabindex="0" role="application"
        aria-label="The image. Arrow keys move from patch to patch, Enter pins, Escape lets go."></canvas>
    </div>
    <p class="explorer-said" role="status"></p>
  </div>
  <div class="explorer-side">
    <div class="controls">
      <fieldset class="choice" data-choice="block"><legend>Block</legend></fieldset>
      <fieldset class="choice" data-choice="form"><legend>Selection</legend></fieldset>
      <fieldset class="choice" data-choice="shown"><legend>Shown</legend></fieldset>
      <label class="range"><span>Temperature <output>× 1</output></span>
        <input type="range" min="-8" max="8" step="0.25" value="0" class="explorer-factor"></label>
    </div>
    <div class="explorer-maps" role="img"></div>
    <dl class="explorer-figures"></dl>
    <div class="actions"><button type="button" class="button explorer-picture">Save as picture</button></div>
  </div>`;

/** Shows what the blocks of a network choose on an image, and what would change the choice. */
export class Explorer {
  /**
   * @param {HTMLElement} root is filled
   * @param {Look} look
   */
  constructor(root, look) {
    this.look = look;
    this.root = root;
    this.block = 0;
    /** @type {Form} */
    this.form = look.head.blocks[0].rule === "hard" ? "hard" : /** @type {Form} */ (look.head.blocks[0].update);
    this.factor = 1;
    this.shown = "output";
    this.pinned = false;
    /** @type {[number, number]} */
    this.query = look.queryAt(0, look.head.width / 2, look.head.height / 2);
    root.classList.add("explorer");
    root.innerHTML = MARKUP;
    const { width, height } = look.head;
    /** @type {Record<string, HTMLCanvasElement>} */
    this.pictures = { input: pictureOf(look.before, width, height), output: pictureOf(look.after, width, height) };
    this.canvas = /** @type {HTMLCanvasElement} */ (root.querySelector(".explorer-image"));
    Object.assign(this.canvas, { width, height });
    this.canvas.style.aspectRatio = `${width} / ${height}`;
    this.#controls();
    this.#listen();
    this.#maps();
    this.draw();
  }

  #controls() {
    const blocks = this.look.head.blocks.map((_, b) => [String(b), `${b + 1}`]);
    this.#choice("block", blocks, "0", (value) => {
      const [x, y] = this.#center();
      this.block = Number(value);
      this.query = this.look.queryAt(this.block, x, y);
      this.#maps();
    });
    this.#choice("form", FORMS, this.form, (value) => (this.form = /** @type {Form} */ (value)));
    const shown = [["output", "Output"], ["input", "Input"], ["temperature", "Temperature"]];
    this.#choice("shown", shown, this.shown, (value) => (this.shown = value));
    const range = /** @type {HTMLInputElement} */ (this.root.querySelector(".explorer-factor"));
    range.addEventListener("input", () => {
      this.factor = 2 ** Number(range.value);
      const said = `× ${this.factor >= 1 ? +this.factor.toFixed(2) : `1/${+(1 / this.factor).toFixed(2)}`}`;
      range.setAttribute("aria-valuetext", said);
      /** @type {HTMLOutputElement} */ (this.root.querySelector("output")).value = said;
      this.draw();
    });
    this.root.querySelector(".explorer-picture")?.addEventListener("click", () => this.savePicture());
  }

  /** @param {string} name @param {string[][]} options @param {string} value @param {(value: string) => void} change */
  #choice(name, options, value, change) {
    const group = /** @type {HTMLElement} */ (this.root.querySelector(`[data-choice=${name}]`));
    for (const [key, text] of options) {
      const label = document.createElement("label");
      const input = Object.assign(document.createElement("input"), { type: "radio", value: key });
      input.name = `explorer-${name}`;
      input.checked = key === value;
      input.addEventListener("change", () => {
        change(key);
        this.draw();
      });
      label.append(input, Object.assign(document.createElement("span"), { textContent: text }));
      group.append(label);
    }
  }

  #listen() {
    const at = (/** @type {PointerEvent} */ event) => {
      const box = this.canvas.getBoundingClientRect();
      const { width, height } = this.canvas;
      const zoom = Math.min(box.width / width, box.height / height); // the picture is centred in its box
      const x = (event.clientX - box.left - (box.width - width * zoom) / 2) / zoom;
      const y = (event.clientY - box.top - (box.height - height * zoom) / 2) / zoom;
      return this.look.queryAt(this.block, x, y);
    };
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.pinned || event.buttons) this.#move(at(event));
    });
    this.canvas.addEventListener("pointerdown", (event) => {
      const query = at(event);
      const same = query[0] === this.query[0] && query[1] === this.query[1];
      this.pinned = !(this.pinned && same);
      this.query = query;
      this.draw();
    });
    this.canvas.addEventListener("keydown", (event) => {
      const step = /** @type {Record<string, [number, number]>} */ ({
        ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      })[event.key];
      if (step) {
        const { rows, cols } = this.look.head.blocks[this.block];
        const most = [rows - 1, cols - 1];
        const next = this.query.map((value, i) => Math.min(Math.max(value + step[i] * (event.shiftKey ? 5 : 1), 0), most[i]));
        this.pinned = true;
        this.#move(/** @type {[number, number]} */ (next));
      } else if (event.key === "Enter" || event.key === " ") {
        this.pinned = !this.pinned;
        this.draw();
      } else if (event.key === "Escape") {
        this.pinned = false;
        this.draw();
      } else {
        return;
      }
      event.preventDefault();
    });
  }

  /** @param {[number, number]} query */
  #move(query) {
    if (query[0] === this.query[0] && query[1] === this.query[1]) return;
    this.query = query;
    this.draw();
  }

  #maps() {
    const { k, window, patch, cell } = this.look.head.blocks[this.block];
    const side = (window - 1 + patch) * cell;
    const box = /** @type {HTMLElement} */ (this.root.querySelector(".explorer-maps"));
    box.replaceChildren();
    this.mapCanvases = Array.from({ length: k + 1 }, (_, j) => {
      const figure = document.createElement("figure");
      const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
      const caption = document.createElement("figcaption");
      caption.append(Object.assign(document.createElement("span"), { textContent: j ? `w${raised(j)}` : "window" }));
      caption.append(document.createElement("b"));
      figure.append(canvas, caption);
      box.append(figure);
      return canvas;
    });
  }

  /** The pixel in the middle of the query. */
  #center() {
    const { patch, cell } = this.look.head.blocks[this.block];
    return this.look.corner(this.block, ...this.query).map((value) => value + (patch * cell) / 2);
  }

  /** The weights that are shown, k rows. */
  weights() {
    return this.look.weights(this.block, ...this.query, { form: this.form, factor: this.factor });
  }

  draw() {
    const weights = this.weights();
    const best = weights.map((row) => row.reduce((a, w, i) => (w > row[a] ? i : a), 0));
    this.#drawImage(best, weights);
    this.#drawMaps(best, weights);
    this.#tell(best, weights);
  }

  /** @param {number[]} best @param {Float64Array[]} weights */
  #drawImage(best, weights) {
    const { patch, cell, window } = this.look.head.blocks[this.block];
    const size = patch * cell;
    const c = context(this.canvas);
    const line = Math.max(1, this.canvas.width / 400);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.#shown(), 0, 0);
    const [row, col] = this.look.windowOf(this.block, ...this.query);
    const [left, top] = this.look.corner(this.block, row, col);
    const reach = (window - 1 + patch) * cell;
    c.lineWidth = line;
    c.setLineDash([3 * line, 3 * line]);
    c.strokeStyle = QUERY_COLOR;
    c.strokeRect(left + 0.5, top + 0.5, reach - 1, reach - 1);
    c.setLineDash([]);
    c.strokeStyle = NEIGHBOR_COLOR;
    best.forEach((slot, j) => {
      const [x, y] = this.look.corner(this.block, row + Math.floor(slot / window), col + (slot % window));
      c.globalAlpha = 0.35 + 0.65 * Math.min(1, weights[j][slot]);
      c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    });
    c.globalAlpha = 1;
    const [x, y] = this.look.corner(this.block, ...this.query);
    c.strokeStyle = QUERY_COLOR;
    c.lineWidth = (this.pinned ? 3 : 2) * line;
    c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }

  /** @returns {HTMLCanvasElement} */
  #shown() {
    if (this.shown !== "temperature") return this.pictures[this.shown];
    const name = `temperature ${this.block}`;
    this.pictures[name] ??= this.#temperatureMap();
    return this.pictures[name];
  }

  #temperatureMap() {
    const { rows, cols, patch, cell } = this.look.head.blocks[this.block];
    const logs = this.look.temperatures(this.block).map(Math.log10);
    const sorted = logs.filter(Number.isFinite).sort();
    const low = sorted[Math.floor(sorted.length * 0.01)];
    const high = Math.max(sorted[Math.floor((sorted.length - 1) * 0.99)], low + 0.02);
    const rgb = new Uint8Array(logs.length * 3);
    logs.forEach((value, i) => rgb.set(heat((value - low) / (high - low)), i * 3));
    const small = pictureOf(rgb, cols, rows);
    const { width, height } = this.look.head;
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const [x, y] = this.look.corner(this.block, 0, 0);
    const shift = ((patch - 1) * cell) / 2; // each cell shows the patch whose centre lies in it
    const c = context(canvas);
    c.imageSmoothingEnabled = false;
    c.drawImage(small, 0, 0, cols, rows, x + shift, y + shift, cols * cell, rows * cell);
    return canvas;
  }

  /** @param {number[]} best @param {Float64Array[]} weights */
  #drawMaps(best, weights) {
    const { window, patch, cell } = this.look.head.blocks[this.block];
    const size = patch * cell;
    const [row, col] = this.look.windowOf(this.block, ...this.query);
    const [left, top] = this.look.corner(this.block, row, col);
    const own = this.look.corner(this.block, ...this.query);
    const picture = this.shown === "input" ? this.pictures.input : this.pictures.output;
    (this.mapCanvases ?? []).forEach((canvas, j) => {
      const c = context(canvas);
      c.fillStyle = "#000";
      c.fillRect(0, 0, canvas.width, canvas.height);
      c.drawImage(picture, -left, -top);
      if (j) {
        c.fillStyle = "rgb(0 0 0 / 55%)";
        c.fillRect(0, 0, canvas.width, canvas.height);
        const w = weights[j - 1];
        const most = w[best[j - 1]];
        w.forEach((value, slot) => {
          const part = value / most;
          if (part < 0.004) return;
          const [r, g, b] = heat(0.3 + 0.7 * part ** 0.6);
          c.fillStyle = `rgb(${r} ${g} ${b} / ${0.85 * part ** 0.6})`;
          c.fillRect((slot % window) * cell, Math.floor(slot / window) * cell, size, size);
        });
        c.strokeStyle = "#fff";
        c.lineWidth = 1.5;
        c.strokeRect((best[j - 1] % window) * cell + 0.5, Math.floor(best[j - 1] / window) * cell + 0.5, size - 1, size - 1);
        const caption = /** @type {HTMLElement} */ (canvas.parentElement?.querySelector("b"));
        caption.textContent = most.toFixed(2);
      }
      c.strokeStyle = QUERY_COLOR;
      c.lineWidth = 1.5;
      c.strokeRect(own[0] - left + 0.5, own[1] - top + 0.5, size - 1, size - 1);
    });
  }

  /** @param {number[]} best @param {Float64Array[]} weights */
  #tell(best, weights) {
    const { cols } = this.look.head.blocks[this.block];
    const query = this.query[0] * cols + this.query[1];
    const t = this.factor / this.look.of(this.block, "scale")[query];
    const [x, y] = this.#center().map(Math.round);
    const repeated = best.length - new Set(best).size;
    const figures = {
      "patch at": `${x}, ${y}`,
      temperature: this.form === "hard" ? "0" : t.toPrecision(3),
      "largest weights": weights.map((row, j) => row[best[j]].toFixed(2)).join("  "),
      "chosen twice": repeated ? `${repeated} of ${best.length}` : "none",
    };
    const list = /** @type {HTMLElement} */ (this.root.querySelector(".explorer-figures"));
    list.replaceChildren();
    for (const [name, value] of Object.entries(figures)) {
      list.append(
        Object.assign(document.createElement("dt"), { textContent: name }),
        Object.assign(document.createElement("dd"), { textContent: value }),
      );
    }
    const first = weights[0][best[0]].toFixed(2);
    const words = `Patch at ${x}, ${y}: first neighbour has weight ${first}${this.pinned ? ", pinned" : ""}`;
    const said = /** @type {HTMLElement} */ (this.root.querySelector(".explorer-said"));
    said.textContent = this.pinned ? `${words}.` : "Move over the image; click to pin a patch.";
    this.root.querySelector(".explorer-maps")?.setAttribute("aria-label", `${words}. Weight maps of its neighbours.`);
  }

  /** The image and the maps below each other, as a PNG file. */
  savePicture() {
    const maps = this.mapCanvases ?? [];
    const gap = 8;
    const width = this.canvas.width;
    const side = (width - gap * (maps.length - 1)) / maps.length;
    const sheet = Object.assign(document.createElement("canvas"), { width, height: Math.ceil(this.canvas.height + gap + side) });
    const c = context(sheet);
    c.fillStyle = "#fff";
    c.fillRect(0, 0, sheet.width, sheet.height);
    c.drawImage(this.canvas, 0, 0);
    maps.forEach((map, j) => c.drawImage(map, j * (side + gap), this.canvas.height + gap, side, side));
    sheet.toBlob((blob) => blob && saveBlob(blob, `${this.look.head.title || "neighbours"}-neighbours.png`));
  }
}

/** Hand a file to the browser's downloads. @param {Blob} blob @param {string} name */
export function saveBlob(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
