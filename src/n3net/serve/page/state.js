// @ts-check
import { ApiError, ask, call } from "./api.js";

/**
 * @typedef {{id: string, name: string, bytes: number, width: number, height: number, levels: number, kind: string, type: string}} Photo
 * @typedef {{work: string, settings: Record<string, any>}} Work
 * @typedef {Work & {id: string, file: string, name: string, state: "waiting" | "running" | "done" | "failed", part?: number,
 *   left?: number | null, error?: string, note?: string, seconds?: number, width?: number, height?: number, levels?: number}} Job
 * @typedef {{name: string, part: number, error?: string, abort: AbortController}} Arrival
 */

const AT_ONCE = 2; // uploads of this page

/** What the server has, the same for all pages that are open: files and jobs. Says "change" when something is new. */
export class State extends EventTarget {
  constructor() {
    super();
    /** @type {Photo[]} */
    this.files = [];
    /** @type {Job[]} */
    this.jobs = [];
    /** @type {number | null} seconds until all jobs are done */
    this.left = null;
    /** @type {Arrival[]} files on their way */
    this.arriving = [];
    this.trouble = "";
    this.version = -1;
  }

  /** Listen to the server for as long as the page is open. */
  async follow() {
    for (;;) {
      try {
        Object.assign(this, await ask("GET", `/api/state?since=${this.version}`), { trouble: "" });
        this.changed();
      } catch (error) {
        const { message, status } = /** @type {ApiError} */ (error);
        this.trouble = message;
        this.version = -1;
        this.changed();
        if (status === 401) return;
        await new Promise((resolve) => setTimeout(resolve, 1500));
      }
    }
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** @param {string} id @returns {Photo | undefined} */
  file(id) {
    return this.files.find((file) => file.id === id);
  }

  /** The job of a photograph. @param {string} id @returns {Job | undefined} */
  jobOf(id) {
    return this.jobs.find((job) => job.file === id);
  }

  /** Send files to the server, a few at a time. @param {Iterable<File>} files @returns {Promise<Photo[]>} those that arrived */
  async add(files) {
    /** @type {Photo[]} */
    const arrived = [];
    const waiting = Array.from(files, (file) => ({ file, arrival: { name: file.name, part: 0, abort: new AbortController() } }));
    this.arriving.push(...waiting.map(({ arrival }) => arrival));
    this.changed();
    const next = async () => {
      for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
        const photo = await this.#send(entry.file, entry.arrival);
        if (photo) arrived.push(photo);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
    return arrived;
  }

  /** @param {File} file @param {Arrival} arrival @returns {Promise<Photo | null>} */
  async #send(file, arrival) {
    try {
      const response = await call("POST", "/api/files", {
        body: file, headers: { "X-Name": encodeURIComponent(file.name) }, signal: arrival.abort.signal,
      });
      const photo = await response.json();
      this.dismiss(arrival);
      if (!this.file(photo.id)) this.files.push(photo);
      this.changed();
      return photo;
    } catch (error) {
      if (arrival.abort.signal.aborted) this.dismiss(arrival);
      else arrival.error = /** @type {Error} */ (error).message;
      this.changed();
      return null;
    }
  }

  /** @param {Arrival} arrival */
  dismiss(arrival) {
    arrival.abort.abort();
    this.arriving = this.arriving.filter((other) => other !== arrival);
    this.changed();
  }
}
