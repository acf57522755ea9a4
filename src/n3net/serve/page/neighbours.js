// @ts-check
import { ask, call, save } from "./api.js";
import { el, failure, slider, waiting } from "./dom.js";
import { Explorer } from "./explorer.js";
import { fileButton, photoSelect } from "./files.js";
import { Look } from "./look.js";

/** Whom a patch chooses. @param {HTMLElement} root @param {import("./app.js").Shared} shared */
export function open(root, shared) {
  const { state } = shared;
  let noise = 0;
  let sigma = "";
  const place = el("div", { class: "look" });
  const photos = photoSelect(state, "Photograph", (id) => (shared.photo = id));
  const model = el("select", { "aria-label": "Network" });
  const level = el("input", { type: "text", inputmode: "decimal", placeholder: "estimated", "aria-label": "Noise level it is told", oninput: () => (sigma = level.value) });
  const button = el("button", { type: "button", class: "button main", onclick: () => look() }, "Look");
  const saving = el("button", { type: "button", class: "button", hidden: true }, "Save as one file");
  const add = async (/** @type {File[]} */ files) => {
    const [photo] = await state.add(files);
    if (photo) choose(photo.id);
  };
  root.append(
    el("div", { class: "intro" }, el("h1", {}, "Whom does a patch choose?"),
      el("p", {}, "The network compares each patch of a photograph with those around it and takes the most similar ones to help. Move over the picture and see which, and how sharply.")),
    el("div", { class: "bar panel" },
      el("label", { class: "field" }, el("span", {}, "Photograph"), photos), fileButton("Add", add),
      el("label", { class: "field" }, el("span", {}, "Network"), model),
      slider("Noise to add first", { min: 0, max: 50, step: 1, value: 0 }, String, (value) => (noise = value)),
      el("label", { class: "field" }, el("span", {}, "Noise level it is told"), level),
      button, saving),
    place,
  );

  /** @param {string} id */
  function choose(id) {
    shared.photo = id;
    photos.value = id;
    update();
    if (model.value && root.dataset.state !== "loading") look();
  }

  function update() {
    button.disabled = !photos.value || !model.value;
    if (!state.files.length && !place.childElementCount) {
      place.replaceChildren(el("div", { class: "empty shown" }, el("h2", {}, "Drop a photograph here"), el("p", {}, "A part of 512 × 512 pixels from its middle is looked at.")));
    } else if (state.files.length && place.querySelector(".empty")) place.replaceChildren();
    root.dataset.state ??= "empty";
  }

  async function knowModels() {
    const names = await ask("GET", "/api/models");
    if (!model.options.length) model.replaceChildren(...names.map((/** @type {string} */ name) => el("option", { value: name }, name)));
    update();
    if (photos.value && root.dataset.state === "empty") await look();
  }

  async function look() {
    root.dataset.state = "loading";
    saving.hidden = true;
    button.disabled = true;
    place.replaceChildren(waiting("The network runs over the photograph …"));
    try {
      const told = sigma.trim() === "" ? null : Number(sigma.replace(",", "."));
      const answer = await ask("POST", "/api/looks", { file: photos.value, model: model.value, noise, sigma: Number.isNaN(told) ? sigma : told });
      const document_ = await (await call("GET", `/api/looks/${answer.id}/data`)).arrayBuffer();
      const frame = el("div");
      place.replaceChildren(frame);
      Object.assign(window, { explorer: new Explorer(frame, new Look(document_)) });
      saving.hidden = false;
      saving.onclick = async () => {
        saving.disabled = true;
        try {
          await save(answer.name, await call("GET", `/api/looks/${answer.id}/page`));
        } catch (error) {
          place.prepend(failure(/** @type {Error} */ (error).message));
        }
        saving.disabled = false;
      };
      root.dataset.state = "done";
    } catch (error) {
      root.dataset.state = "failed";
      place.replaceChildren(failure(/** @type {Error} */ (error).message, look));
    }
    button.disabled = false;
  }

  state.addEventListener("change", update);
  update();
  return {
    enter: () => {
      if (shared.photo && state.file(shared.photo)) photos.value = shared.photo;
      update();
      knowModels().catch((error) => place.replaceChildren(failure(error.message, knowModels)));
    },
    drop: (/** @type {import("./state.js").Photo[]} */ added) => choose(added[0].id),
  };
}
