// @ts-check
import { el } from "./dom.js";
import { Tiles } from "./tiles.js";

/**
 * @typedef {{box: [number, number, number, number], pixels: HTMLCanvasElement}} Preview box is in pixels of the picture before
 * @typedef {"slider" | "side"} Mode
 */

const CLOSEST = 40; // pixels of the screen for one of the picture
const HANDLE = 24; // pixels around the line between before and after where it can be taken hold of

/** Before and after in one frame: moved and zoomed together. */
export class Viewer {
  /** @param {() => void} moved is called when another part is seen */
  constructor(moved) {
    this.moved = moved;
    this.canvas = el("canvas", {
      class: "viewer", tabindex: "0", role: "application",
      "aria-label": "Before and after. Arrow keys move, plus and minus zoom, 0 shows all, 1 shows single pixels, comma and full stop move the line between before and after, S swaps them.",
    });
    /** @type {Tiles | null} */
    this.before = null;
    /** @type {Tiles | null} */
    this.after = null;
    /** @type {Preview | null} */
    this.preview = null;
    /** @type {Mode} */
    this.mode = "slider";
    this.split = 0.5;
    this.swapped = false;
    this.zoom = 1; // CSS pixels for each pixel of the picture before
    this.x = 0; // what is in the middle, in pixels of the picture before
    this.y = 0;
    /** @type {Map<number, PointerEvent>} */
    this.pointers = new Map();
    this.dragsSplit = false;
    this.#listen();
    new ResizeObserver(() => this.#resized()).observe(this.canvas);
    document.documentElement.addEventListener("theme", () => this.draw());
  }

  /** Show another picture. @param {Tiles | null} before */
  show(before) {
    this.before = before;
    this.after = this.preview = null;
    this.fitted = false;
    this.#first();
  }

  /** Single pixels where the picture is larger than the frame, all of it where it is not. */
  #first() {
    if (!this.before || this.fitted || !this.canvas.clientWidth) return;
    this.fitted = true;
    this.x = this.before.width / 2;
    this.y = this.before.height / 2;
    this.zoom = Math.max(this.fit, Math.min(1, this.fit * 8));
    if (this.fit > 1) this.zoom = Math.min(this.fit, 4);
    this.#seen();
  }

  /** The zoom that shows all. */
  get fit() {
    if (!this.before) return 1;
    const { width, height } = this.#pane();
    return Math.min(width / this.before.width, height / this.before.height);
  }

  /** Width and height of what shows one picture, in CSS pixels. */
  #pane() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return { width: this.mode === "side" ? width / 2 : width, height };
  }

  /** What is seen, in pixels of the picture before. @returns {[number, number, number, number]} left, top, width, height */
  get seen() {
    const { width, height } = this.#pane();
    const b = /** @type {Tiles} */ (this.before);
    const left = Math.max(0, this.x - width / 2 / this.zoom);
    const top = Math.max(0, this.y - height / 2 / this.zoom);
    return [left, top, Math.min(b.width, this.x + width / 2 / this.zoom) - left, Math.min(b.height, this.y + height / 2 / this.zoom) - top];
  }

  /** @param {number} zoom @param {number} [x] @param {number} [y] the pixel of the pane that stays where it is */
  zoomTo(zoom, x, y) {
    if (!this.before) return;
    const { width, height } = this.#pane();
    const dx = (x ?? width / 2) - width / 2;
    const dy = (y ?? height / 2) - height / 2;
    const next = Math.min(Math.max(zoom, Math.min(this.fit, 1) / 2), CLOSEST);
    this.x += dx / this.zoom - dx / next;
    this.y += dy / this.zoom - dy / next;
    this.zoom = next;
    this.#seen();
  }

  fitAll() {
    if (!this.before) return;
    this.x = this.before.width / 2;
    this.y = this.before.height / 2;
    this.zoom = this.fit;
    this.#seen();
  }

  swap() {
    this.swapped = !this.swapped;
    this.draw();
  }

  /** @param {Mode} mode */
  setMode(mode) {
    this.mode = mode;
    this.#seen();
  }

  /** @param {number} split of 0 to 1 */
  setSplit(split) {
    this.split = Math.min(Math.max(split, 0), 1);
    this.draw();
  }

  #seen() {
    if (this.before) {
      this.x = Math.min(Math.max(this.x, 0), this.before.width);
      this.y = Math.min(Math.max(this.y, 0), this.before.height);
    }
    this.draw();
    this.moved();
  }

  #resized() {
    this.#first();
    this.draw();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.#paint();
    });
  }

  #paint() {
    const c = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const ratio = devicePixelRatio || 1;
    const [wide, tall] = [this.canvas.clientWidth, this.canvas.clientHeight].map((side) => Math.round(side * ratio));
    if (this.canvas.width !== wide || this.canvas.height !== tall) Object.assign(this.canvas, { width: wide, height: tall });
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    Object.assign(this.canvas.dataset, { zoom: this.zoom.toFixed(4), x: this.x.toFixed(1), y: this.y.toFixed(1), swapped: String(this.swapped) });
    if (!this.before) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const has = this.after !== null || this.preview !== null;
    const first = this.swapped && has ? "after" : "before";
    const second = this.swapped ? "before" : "after";
    if (this.mode === "side") {
      const half = Math.round(width / 2); // whole pixels, so that both are drawn alike
      const middle = Math.round(half / 2);
      this.#pane1(c, first, 0, half - 1, middle, ratio);
      this.#pane1(c, second, half + 1, width - half - 1, half + middle, ratio);
      this.#label(c, first, 12, "left");
      this.#label(c, second, width - 12, "right");
      return;
    }
    const line = has ? Math.round(this.split * width) : width;
    this.#pane1(c, first, 0, line, width / 2, ratio);
    if (!has) return;
    this.#pane1(c, second, line, width - line, width / 2, ratio);
    c.fillStyle = "#fff";
    c.shadowColor = "rgb(0 0 0 / 60%)";
    c.shadowBlur = 4;
    c.fillRect(line - 1, 0, 2, height);
    c.beginPath();
    c.arc(line, height / 2, 13, 0, 2 * Math.PI);
    c.fill();
    c.shadowBlur = 0;
    c.fillStyle = "#333";
    c.font = "12px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText("◂▸", line, height / 2 + 1);
    if (line > 80) this.#label(c, first, 12, "left");
    if (width - line > 80) this.#label(c, second, width - 12, "right");
  }

  /** @param {CanvasRenderingContext2D} c @param {string} which @param {number} at @param {"left" | "right"} align */
  #label(c, which, at, align) {
    const text = which === "before" ? "Before" : this.after ? "After" : this.preview ? "After (preview)" : "Not restored yet";
    c.font = "600 12px system-ui, sans-serif";
    const wide = c.measureText(text).width + 16;
    c.fillStyle = "rgb(0 0 0 / 65%)";
    c.beginPath();
    c.roundRect(align === "left" ? at : at - wide, 12, wide, 24, 6);
    c.fill();
    c.fillStyle = "#fff";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(text, align === "left" ? at + wide / 2 : at - wide / 2, 24.5);
  }

  /** One picture. @param {CanvasRenderingContext2D} c @param {string} which @param {number} left @param {number} width @param {number} middle @param {number} ratio */
  #pane1(c, which, left, width, middle, ratio) {
    if (width <= 0) return;
    const before = /** @type {Tiles} */ (this.before);
    const height = this.canvas.clientHeight;
    c.save();
    c.beginPath();
    c.rect(left, 0, width, height);
    c.clip();
    c.imageSmoothingEnabled = this.zoom * ratio < 1;
    c.translate(middle, height / 2);
    c.scale(this.zoom, this.zoom);
    c.translate(-this.x, -this.y);
    const part = {
      left: this.x - (middle - left) / this.zoom, right: this.x + (left + width - middle) / this.zoom,
      top: this.y - height / 2 / this.zoom, bottom: this.y + height / 2 / this.zoom,
    };
    const tiles = which === "after" && this.after ? this.after : before;
    const factor = tiles.width / before.width;
    c.save();
    c.scale(1 / factor, 1 / factor);
    const there = Object.fromEntries(Object.entries(part).map(([side, value]) => [side, value * factor]));
    tiles.draw(c, /** @type {any} */ (there), (this.zoom * ratio) / factor);
    c.restore();
    if (which === "after" && !this.after && this.preview) {
      const [x, y, w, h] = this.preview.box;
      c.drawImage(this.preview.pixels, x, y, w, h);
      c.strokeStyle = "rgb(255 255 255 / 70%)";
      c.lineWidth = 1 / this.zoom;
      c.strokeRect(x, y, w, h);
    }
    c.restore();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = this.#at(event);
      this.zoomTo(this.zoom * 2 ** (-event.deltaY / (event.deltaMode ? 6 : 240)), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
      const line = this.split * canvas.clientWidth;
      this.dragsSplit = this.mode === "slider" && this.pointers.size === 1 && Math.abs(event.offsetX - line) < HANDLE;
    });
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => {
        this.pointers.delete(/** @type {PointerEvent} */ (event).pointerId);
        this.dragsSplit = false;
      });
    }
    canvas.addEventListener("dblclick", () => (this.zoom < 1 ? this.zoomTo(1) : this.fitAll()));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Where an event is in the pane that it is in. @param {MouseEvent} event @returns {[number, number]} */
  #at(event) {
    const { width } = this.#pane();
    return [event.offsetX % Math.max(width, 1), event.offsetY];
  }

  /** @param {PointerEvent} event */
  #drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      const near = this.mode === "slider" && Math.abs(event.offsetX - this.split * this.canvas.clientWidth) < HANDLE;
      this.canvas.style.cursor = near && (this.after || this.preview) ? "col-resize" : "grab";
      return;
    }
    const others = [...this.pointers.values()].filter((other) => other.pointerId !== event.pointerId);
    this.pointers.set(event.pointerId, event);
    if (this.dragsSplit) {
      this.setSplit(event.offsetX / this.canvas.clientWidth);
      this.canvas.dispatchEvent(new CustomEvent("split", { detail: this.split }));
      return;
    }
    if (others.length === 1) {
      const [other] = others;
      const apart = (/** @type {PointerEvent} */ e) => Math.hypot(e.offsetX - other.offsetX, e.offsetY - other.offsetY);
      const [x, y] = this.#at(other);
      this.zoomTo((this.zoom * apart(event)) / Math.max(apart(before), 1), x, y);
      return;
    }
    this.x -= (event.offsetX - before.offsetX) / this.zoom;
    this.y -= (event.offsetY - before.offsetY) / this.zoom;
    this.#seen();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = (event.shiftKey ? 200 : 50) / this.zoom;
    const actions = /** @type {Record<string, () => void>} */ ({
      ArrowLeft: () => (this.x -= step), ArrowRight: () => (this.x += step),
      ArrowUp: () => (this.y -= step), ArrowDown: () => (this.y += step),
      "+": () => this.zoomTo(this.zoom * 1.5), "=": () => this.zoomTo(this.zoom * 1.5), "-": () => this.zoomTo(this.zoom / 1.5),
      0: () => this.fitAll(), 1: () => this.zoomTo(1),
      ",": () => this.setSplit(this.split - 0.05), ".": () => this.setSplit(this.split + 0.05),
      s: () => this.swap(), S: () => this.swap(),
    });
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
    this.#seen();
    this.canvas.dispatchEvent(new CustomEvent("split", { detail: this.split }));
  }
}
