// @ts-check
import { ask, call, pixelsOf } from "./api.js";
import { choice, duration, el, say } from "./dom.js";
import { fileButton } from "./files.js";
import { PhotoList } from "./photolist.js";
import { Tiles } from "./tiles.js";
import { Viewer } from "./viewer.js";
import { WorkPanel } from "./work.js";

/** @typedef {import("./state.js").Photo} Photo @typedef {import("./state.js").Job} Job @typedef {import("./state.js").Work} Work */

const PREVIEW = 520_000; // pixels of the result, at most
const PAUSE = 250; // milliseconds without a change before a preview is asked for

/** @param {HTMLElement} root @param {import("./app.js").Shared} shared */
export function open(root, shared) {
  const room = new Restore(root, shared);
  return { enter: () => room.entered(), drop: (/** @type {Photo[]} */ photos) => room.select(photos[0].id) };
}

/** Photographs in, better ones out. */
class Restore {
  /** @param {HTMLElement} root @param {import("./app.js").Shared} shared */
  constructor(root, shared) {
    this.root = root;
    this.shared = shared;
    this.state = shared.state;
    /** @type {Photo | undefined} that is looked at */
    this.photo = undefined;
    /** @type {Map<string, Tiles>} pictures by their path on the server */
    this.tiles = new Map();
    this.previewed = this.note = this.error = "";
    this.previewing = false;
    this.viewer = new Viewer(() => this.#seen());
    this.panel = new WorkPanel(() => this.#wanted(), { one: () => this.#restore(this.photo ? [this.photo] : []), all: () => this.#restore(this.state.files) });
    this.list = new PhotoList(this.state, {
      add: (files) => this.#add(files), pick: (id) => this.select(id), small: (photo) => this.#tilesOf(`/api/files/${photo.id}`, photo).small,
    });
    this.split = el("input", { type: "range", min: "0", max: "1", step: "0.01", class: "split", "aria-label": "Line between before and after", oninput: () => this.viewer.setSplit(Number(this.split.value)) });
    this.zoom = el("output", { class: "zoom-now", "aria-label": "Zoom" }, "100 %");
    this.told = el("p", { class: "told", role: "status" });
    this.#build();
    this.state.addEventListener("change", () => this.#update());
    this.#update();
  }

  entered() {
    if (this.shared.photo && this.shared.photo !== this.photo?.id && this.state.file(this.shared.photo)) this.select(this.shared.photo);
    this.viewer.draw();
    ask("GET", "/api/about").then((about) => {
      this.panel.known = about.options.denoise;
      this.panel.build();
    }, () => {});
  }

  #build() {
    const { viewer } = this;
    const button = (/** @type {string} */ text, /** @type {string} */ name, /** @type {() => void} */ onclick) =>
      el("button", { type: "button", class: "button", "aria-label": name, onclick }, text);
    const toolbar = el("div", { class: "toolbar" },
      choice("View", "view", [["slider", "Slider"], ["side", "Side by side"]], "slider", (mode) => {
        viewer.setMode(/** @type {any} */ (mode));
        this.split.hidden = mode === "side";
      }),
      el("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
        button("−", "Smaller", () => viewer.zoomTo(viewer.zoom / 1.5)), this.zoom, button("+", "Larger", () => viewer.zoomTo(viewer.zoom * 1.5)),
        button("Fit", "Fit", () => viewer.fitAll()), button("1 : 1", "1 : 1", () => viewer.zoomTo(1)), button("Swap", "Swap", () => viewer.swap())));
    this.split.value = "0.5";
    viewer.canvas.addEventListener("split", (event) => (this.split.value = String(/** @type {CustomEvent} */ (event).detail)));
    const empty = el("div", { class: "empty" },
      el("div", { class: "empty-art", "aria-hidden": "true" }, el("i"), el("i"), el("i")),
      el("h2", {}, "Drop photographs here"),
      el("p", {}, "Remove noise from them, or make them larger. They stay on this machine."),
      fileButton("Choose photographs", (files) => this.#add(files), "button main"),
      el("p", { class: "hint" }, "PNG, JPEG, TIFF, WebP, BMP, and raw files of cameras such as DNG"));
    this.root.append(el("h1", { class: "unseen" }, "Restore photographs"), empty, el("div", { class: "restore" },
      el("div", { class: "stage" }, toolbar, viewer.canvas, this.split, this.told),
      el("div", { class: "side" }, this.panel.element, this.list.element)));
  }

  /** @param {File[]} files */
  async #add(files) {
    const photos = await this.state.add(files);
    if (photos.length) this.select(photos[0].id);
  }

  /** Look at a photograph. @param {string} id */
  select(id) {
    this.photo = this.state.file(id);
    this.shared.photo = id;
    this.previewed = this.note = this.error = "";
    this.viewer.show(this.photo ? this.#tilesOf(`/api/files/${id}`, this.photo) : null);
    this.#update();
    this.#seen();
  }

  /** @param {string} path @param {{width: number, height: number, levels: number}} size */
  #tilesOf(path, size) {
    let tiles = this.tiles.get(path);
    if (!tiles) {
      tiles = new Tiles(path, size, () => {
        this.viewer.draw();
        this.list.drawThumbnails();
      });
      this.tiles.set(path, tiles);
    }
    return tiles;
  }

  /** The job of the photograph that is looked at, if it does what is wanted. @returns {Job | undefined} */
  get job() {
    const job = this.photo && this.state.jobOf(this.photo.id);
    const { work, settings } = this.panel.wanted;
    return job?.work === work && JSON.stringify(job.settings) === JSON.stringify(settings) ? job : undefined;
  }

  #wanted() {
    this.viewer.preview = null;
    this.error = "";
    this.#update();
    this.#seen();
  }

  /** Another part is seen, or something else is wanted of it. */
  #seen() {
    this.zoom.value = `${Math.round(this.viewer.zoom * 100)} %`;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#preview(), PAUSE);
  }

  /** What is seen, or the middle of it. @returns {[number, number, number, number]} left, top, width, height */
  #box() {
    const [left, top, width, height] = this.viewer.seen;
    const { work, settings } = this.panel.wanted;
    const most = PREVIEW / (work === "upscale" ? Math.max(2, settings.factor) ** 2 : 1);
    const part = Math.min(1, Math.sqrt(most / Math.max(width * height, 1)));
    const inner = [left + (width * (1 - part)) / 2, top + (height * (1 - part)) / 2, width * part, height * part].map(Math.floor);
    return [inner[0], inner[1], Math.max(1, inner[2]), Math.max(1, inner[3])];
  }

  /** Restore a part that is seen, while somebody looks at it. */
  async #preview() {
    if (!this.photo || !this.viewer.before || !this.viewer.canvas.clientWidth || this.job?.state === "done") return;
    const box = this.#box();
    const wanted = this.panel.wanted;
    const key = JSON.stringify([this.photo.id, box, wanted]);
    if (key === this.previewed) return;
    this.asked?.abort();
    this.asked = new AbortController();
    this.previewed = key;
    this.previewing = true;
    this.#tell();
    try {
      const response = await call("POST", `/api/files/${this.photo.id}/preview`, { json: { ...wanted, box }, signal: this.asked.signal });
      const pixels = await pixelsOf(response);
      if (key !== this.previewed || !pixels) return;
      this.viewer.preview = { box, pixels };
      this.note = JSON.parse(response.headers.get("X-Note") ?? '""');
      this.error = "";
      say("The preview is ready");
    } catch (error) {
      if (key !== this.previewed || /** @type {Error} */ (error).name === "AbortError") return;
      this.error = /** @type {Error} */ (error).message;
    }
    this.previewing = false;
    this.#tell();
    this.viewer.draw();
  }

  /** @param {Photo[]} photos */
  async #restore(photos) {
    const wanted = this.panel.wanted;
    for (const photo of [...photos]) {
      try {
        await ask("POST", "/api/jobs", { file: photo.id, ...wanted });
      } catch (error) {
        this.error = /** @type {Error} */ (error).message;
      }
    }
    this.#update();
  }

  #update() {
    const { state, viewer } = this;
    const nothing = !state.files.length && !state.arriving.length;
    this.root.classList.toggle("nothing", nothing);
    this.root.dataset.state = nothing ? "empty" : "filled";
    if (this.photo && !state.file(this.photo.id)) this.photo = undefined;
    if (!this.photo && state.files.length) {
      this.select(state.files[0].id);
      return;
    }
    if (!this.photo && viewer.before) viewer.show(null);
    const job = this.job;
    const after = job?.state === "done" ? this.#tilesOf(`/api/jobs/${job.id}`, /** @type {any} */ (job)) : null;
    if (after !== viewer.after) {
      viewer.after = after;
      viewer.draw();
      if (!after) this.#seen();
    }
    this.panel.one.disabled = !this.photo || ["waiting", "running", "done"].includes(job?.state ?? "");
    this.panel.all.hidden = state.files.length < 2;
    this.panel.all.textContent = `Restore all ${state.files.length}`;
    this.list.update(this.photo?.id);
    this.#tell();
    for (const path of this.tiles.keys()) {
      const id = path.split("/")[3];
      if (!state.file(id) && !state.jobs.some((other) => other.id === id)) this.tiles.delete(path);
    }
  }

  /** What is being done with the photograph that is looked at. */
  #tell() {
    const job = this.job;
    const error = job?.state === "failed" ? job.error : job || this.previewing ? "" : this.error;
    const words = {
      done: () => `Done in ${duration(job?.seconds ?? 0)}: ${job?.note}`,
      running: () => `Restoring the whole: ${Math.round((job?.part ?? 0) * 100)} %${job?.left ? `, about ${duration(job.left)} left` : ""}`,
      waiting: () => "Waiting for its turn",
      failed: () => job?.error ?? "",
      opening: () => (this.state.arriving.length ? "Opening …" : ""),
      previewing: () => "Preview of the visible part …",
      previewed: () => `Preview: ${this.note}. “Restore” does the whole photograph.`,
    };
    const now = job?.state ?? (!this.photo ? "opening" : this.previewing ? "previewing" : this.viewer.preview ? "previewed" : "opening");
    this.told.textContent = error || words[now]();
    this.told.classList.toggle("bad", Boolean(error));
    this.told.dataset.state = error ? "failed" : now;
  }
}
