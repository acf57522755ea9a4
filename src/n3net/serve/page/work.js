// @ts-check
import { choice, el, slider } from "./dom.js";

/** @typedef {import("./state.js").Work} Work */

const HINTS = {
  automatic: "Looks whether the noise is a camera's or even, and how strong. Raw files tell their own.",
  photograph: "Noise of cameras and phones, which differs between dark and bright.",
  hand: "You say how strong the noise is, in gray levels of 0 to 255.",
};

/** What is to be done with photographs: the settings of the commands denoise and upscale. */
export class WorkPanel {
  /**
   * @param {() => void} changed
   * @param {{one: () => void, all: () => void}} start
   */
  constructor(changed, start) {
    this.changed = changed;
    this.work = "denoise";
    /** @type {keyof typeof HINTS} */
    this.how = "automatic";
    this.sigma = 25;
    this.strength = 1;
    this.factor = 2;
    /** @type {string[]} which settings of denoise the server knows */
    this.known = [];
    this.controls = el("div", { class: "controls" });
    this.one = el("button", { type: "button", class: "button main", onclick: start.one }, "Restore");
    this.all = el("button", { type: "button", class: "button", onclick: start.all, hidden: true }, "Restore all");
    this.element = el("div", { class: "panel controls settings" }, this.controls, el("div", { class: "actions" }, this.one, this.all));
    this.build();
  }

  /** As the server takes it. @returns {Work} */
  get wanted() {
    if (this.work === "upscale") return { work: "upscale", settings: { factor: this.factor } };
    /** @type {Record<string, any>} */
    const settings = {};
    if (this.how === "hand") settings.sigma = this.sigma;
    if (this.how === "photograph") settings.real = true;
    if (this.strength < 1) settings.strength = this.strength;
    return { work: "denoise", settings };
  }

  build() {
    const focused = /** @type {HTMLInputElement | null} */ (document.activeElement);
    const kept = focused && this.controls.contains(focused) ? `input[name="${focused.name}"][value="${focused.value}"]` : "";
    const again = (/** @type {() => void} */ set) => {
      set();
      this.build();
      this.changed();
    };
    const numbers = (/** @type {"sigma" | "strength" | "factor"} */ name) => (/** @type {number} */ value) => {
      this[name] = value;
      this.changed();
    };
    const works = /** @type {[string, string][]} */ ([["denoise", "Denoise"], ["upscale", "Upscale"]]);
    const hows = /** @type {[string, string][]} */ ([["automatic", "Automatic"], ["photograph", "Photograph"], ["hand", "By hand"]]);
    const denoising = this.work === "denoise";
    const strong = denoising && this.known.includes("strength");
    this.controls.replaceChildren(
      ...[
        choice("What to do", "work", works, this.work, (work) => again(() => (this.work = work))),
        denoising && choice("Noise", "how", hows, this.how, (how) => again(() => (this.how = /** @type {any} */ (how)))),
        denoising && el("p", { class: "hint" }, HINTS[this.how]),
        denoising && this.how === "hand" && slider("Noise level σ", { min: 0, max: 75, step: 1, value: this.sigma }, String, numbers("sigma")),
        strong && slider("Strength", { min: 0, max: 1, step: 0.05, value: this.strength }, (v) => `${Math.round(v * 100)} %`, numbers("strength")),
        !denoising && slider("Factor", { min: 1, max: 4, step: 0.1, value: this.factor }, (v) => `× ${v.toFixed(1)}`, numbers("factor")),
      ].filter((part) => part instanceof HTMLElement),
    );
    if (kept) /** @type {HTMLElement | null} */ (this.controls.querySelector(kept))?.focus();
  }
}
