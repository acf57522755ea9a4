// @ts-check
import { ask, call, save } from "./api.js";
import { duration, el, failure } from "./dom.js";
import { fileButton } from "./files.js";

/** @typedef {import("./state.js").Photo} Photo @typedef {import("./state.js").Job} Job */

const THUMB = 96; // pixels along a side

/** The photographs that are there, how far each is, and what can be done with it. */
export class PhotoList {
  /**
   * @param {import("./state.js").State} state
   * @param {{add: (files: File[]) => void, pick: (id: string) => void, small: (photo: Photo) => HTMLCanvasElement | null}} room
   */
  constructor(state, room) {
    this.state = state;
    this.room = room;
    this.rows = el("ul", { class: "photos" });
    this.summary = el("div", { class: "summary" });
    this.listed = this.summed = "";
    this.element = el("div", { class: "panel files" },
      el("div", { class: "files-head" }, el("h2", {}, "Photographs"), fileButton("Add", room.add)), this.rows, this.summary);
  }

  /** @param {string | undefined} picked */
  update(picked) {
    this.#updateSummary();
    const { files, jobs, arriving } = this.state;
    const key = JSON.stringify([files.map((file) => file.id), jobs, arriving, picked]);
    if (key === this.listed) return;
    this.listed = key;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.key;
    this.rows.replaceChildren(...files.map((photo) => this.#row(photo, photo.id === picked)), ...arriving.map((arrival) => this.#arrival(arrival)));
    if (focused) /** @type {HTMLElement | null} */ (this.rows.querySelector(`[data-key="${focused}"]`))?.focus();
    this.drawThumbnails();
  }

  drawThumbnails() {
    for (const photo of this.state.files) {
      const canvas = /** @type {HTMLCanvasElement | null} */ (this.rows.querySelector(`[data-thumb="${photo.id}"]`));
      const small = canvas && !canvas.dataset.drawn && this.room.small(photo);
      if (!small) continue;
      canvas.dataset.drawn = "yes";
      const scale = THUMB / Math.min(small.width, small.height);
      const [width, height] = [small.width * scale, small.height * scale];
      canvas.getContext("2d")?.drawImage(small, (THUMB - width) / 2, (THUMB - height) / 2, width, height);
    }
  }

  /** @param {import("./state.js").Arrival} arrival */
  #arrival(arrival) {
    return el("li", { class: arrival.error ? "arriving bad" : "arriving" },
      el("span", { class: "thumb", "aria-hidden": "true" }, arrival.error ? "!" : el("span", { class: "spinner" })),
      el("span", { class: "name" }, el("b", {}, arrival.name), el("small", {}, arrival.error ?? "opening …")),
      el("button", { type: "button", class: "button icon", "aria-label": `Dismiss ${arrival.name}`, onclick: () => this.state.dismiss(arrival) }, "✕"));
  }

  /** @param {Photo} photo @param {boolean} picked */
  #row(photo, picked) {
    const job = this.state.jobOf(photo.id);
    const button = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {() => void} */ onclick) =>
      el("button", { type: "button", class: "button icon", "data-key": `${photo.id}-${name}`, "aria-label": `${name} ${photo.name}`, title: name, onclick }, sign);
    const open = job && ["waiting", "running"].includes(job.state);
    return el("li", { class: job?.state ?? "", "data-file": photo.id, "data-state": job?.state ?? "" },
      el("button", { type: "button", class: "pick", "data-key": photo.id, "aria-pressed": String(picked), onclick: () => this.room.pick(photo.id) },
        el("canvas", { class: "thumb", width: THUMB, height: THUMB, "data-thumb": photo.id, "aria-hidden": "true" }),
        el("span", { class: "name" }, el("b", {}, photo.name), el("small", {}, statusOf(photo, job)))),
      el("span", { class: "row-actions" },
        job?.state === "done" && button("Download", "↓", () => this.#try(() => this.#download(job))),
        open ? button("Cancel", "■", () => this.#drop(`/api/jobs/${job.id}`)) : button("Remove", "✕", () => this.#drop(`/api/files/${photo.id}`))),
      job?.state === "running" && el("progress", { max: "1", value: String(job.part ?? 0), "aria-label": `Progress of ${photo.name}` }));
  }

  #updateSummary() {
    const { jobs, files } = this.state;
    const done = jobs.filter((job) => job.state === "done");
    const open = jobs.filter((job) => ["waiting", "running"].includes(job.state));
    const failed = jobs.filter((job) => job.state === "failed").length;
    const left = this.state.left && open.length > 1 ? `, about ${duration(this.state.left)} left` : "";
    const key = JSON.stringify([done.map((job) => job.id), open.map((job) => job.id), failed, left]);
    if (key === this.summed) return;
    this.summed = key;
    const cancel = () => open.reverse().forEach((job) => this.#drop(`/api/jobs/${job.id}`));
    this.summary.replaceChildren(
      el("p", {}, jobs.length ? `${done.length} of ${jobs.length} done${failed ? `, ${failed} failed` : ""}${left}` : ""),
      el("div", { class: "actions" },
        open.length > 1 && el("button", { type: "button", class: "button", onclick: cancel }, "Cancel all"),
        done.length === 1 && el("button", { type: "button", class: "button main", onclick: () => this.#try(() => this.#download(done[0])) }, "Download"),
        done.length > 1 && el("button", { type: "button", class: "button main", onclick: () => this.#try(() => this.#downloadAll(done)) }, `Download all ${done.length}`)),
    );
  }

  /** @param {string} path */
  #drop(path) {
    return this.#try(() => ask("DELETE", path));
  }

  /** @param {Job} job */
  async #download(job) {
    await save(job.name, await call("GET", `/api/jobs/${job.id}/file`));
  }

  /** @param {Job[]} jobs */
  async #downloadAll(jobs) {
    await save("restored.zip", await call("POST", "/api/archive", { json: { jobs: jobs.map((job) => job.id) } }));
  }

  /** @param {() => Promise<any>} action */
  async #try(action) {
    try {
      await action();
    } catch (error) {
      const { message, status } = /** @type {import("./api.js").ApiError} */ (error);
      if (status !== 404) this.summary.append(failure(message)); // what is gone is what was wanted
    }
  }
}

/** @param {Photo} photo @param {Job} [job] */
function statusOf(photo, job) {
  if (job?.state === "waiting") return "waiting";
  if (job?.state === "failed") return job.error ?? "";
  if (job?.state === "done") return `done, ${job.note}`;
  if (job) return `${Math.round((job.part ?? 0) * 100)} %${job.left ? `, ${duration(job.left)} left` : ""}`;
  return `${photo.width} × ${photo.height}${photo.type === "uint16" ? ", 16 bit" : ""}${photo.kind === "raw" ? ", raw" : ""}`;
}
