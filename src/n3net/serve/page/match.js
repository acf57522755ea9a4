// @ts-check
import { ask } from "./api.js";
import { el, failure, say, slider, waiting } from "./dom.js";
import { fileButton, photoSelect } from "./files.js";
import { PairView } from "./pair.js";
import { Tiles } from "./tiles.js";

/** Two photographs of one place. @param {HTMLElement} root @param {import("./app.js").Shared} shared */
export function open(root, shared) {
  const { state } = shared;
  const selects = [photoSelect(state, "First photograph", () => update()), photoSelect(state, "Second photograph", () => update())];
  const cameras = [0, 1].map((i) => el("input", { type: "text", placeholder: "from the file", "aria-label": `Focal length or K of the ${i ? "second" : "first"} camera` }));
  const button = el("button", { type: "button", class: "button main", onclick: () => match() }, "Match");
  const place = el("div", { class: "match-place" });
  root.append(
    el("div", { class: "intro" }, el("h1", {}, "What do two photographs have in common?"),
      el("p", {}, "Points that look alike are matched, a network tells right matches from wrong ones, and from those that are left it follows how the camera moved.")),
    el("div", { class: "bar panel" },
      ...["First", "Second"].flatMap((name, i) => [
        el("label", { class: "field" }, el("span", {}, `${name} photograph`), selects[i]),
        el("label", { class: "field" }, el("span", {}, `Its focal length, or K`), cameras[i])]),
      fileButton("Add", async (files) => dropped(await state.add(files))), button),
    place,
  );

  /** @param {import("./state.js").Photo[]} photos */
  function dropped(photos) {
    const [first, second] = photos;
    if (first && second) {
      selects[0].value = first.id;
      selects[1].value = second.id;
    } else if (first) selects[selects[0].value === first.id || state.files.length > 1 ? 1 : 0].value = first.id;
    update();
  }

  function update() {
    button.disabled = !selects[0].value || !selects[1].value || selects[0].value === selects[1].value;
    const few = state.files.length < 2;
    if (few && !place.childElementCount) {
      place.replaceChildren(el("div", { class: "empty shown" }, el("h2", {}, "Drop two photographs here"), el("p", {}, "Of the same place, from different points of view.")));
    } else if (!few && place.querySelector(".empty")) place.replaceChildren();
    if (!few && selects[0].value === selects[1].value && !root.dataset.chosen) {
      root.dataset.chosen = "yes";
      selects[1].value = state.files[1].id;
      update();
    }
  }

  /** Focal lengths as the command takes them, or nine numbers of K each. */
  function given() {
    const texts = cameras.map((input) => input.value.trim());
    const numbers = texts.map((text) => text.split(/[\s,;]+/).filter(Boolean));
    if (numbers.some((words) => words.length > 1)) return { K: texts.filter(Boolean) };
    return { focal: texts[0] && texts[1] ? texts : texts.filter(Boolean) };
  }

  async function match() {
    root.dataset.state = "loading";
    button.disabled = true;
    place.replaceChildren(waiting("Points are found, matched and judged …"));
    try {
      const files = selects.map((select) => select.value);
      const found = await ask("POST", "/api/matches", { files, ...given() });
      place.replaceChildren(result(found, files));
      root.dataset.state = "done";
      say(`${found.matches} matches, ${found.kept} kept, ${found.inliers} agree with the pose`);
    } catch (error) {
      root.dataset.state = "failed";
      place.replaceChildren(failure(/** @type {Error} */ (error).message, match));
    }
    update();
  }

  /** @param {any} found what n3net match writes to matches.json @param {string[]} files */
  function result(found, files) {
    const tiles = files.map((id) => new Tiles(`/api/files/${id}`, /** @type {any} */ (state.file(id)), () => view.draw()));
    const view = new PairView(found, tiles);
    Object.assign(window, { pair: view });
    const scores = found.table.map((/** @type {any[]} */ row) => row[4]).filter(Number.isFinite);
    const low = Math.min(0, ...scores);
    const high = Math.max(0.001, ...scores);
    const counts = el("p", { class: "counts", role: "status" });
    const recount = () => (counts.textContent = `${view.shown.length} of ${found.matches} shown: ${view.agreeing} agree with the pose`);
    const threshold = slider("Score of at least", { min: low, max: high, step: (high - low) / 200, value: Math.max(low, 0) }, (v) => v.toFixed(2), (value) => {
      view.threshold = value;
      view.choose();
      recount();
    });
    const toggle = (/** @type {string} */ name, /** @type {"agree" | "differ"} */ key) =>
      el("label", {}, el("input", { type: "checkbox", checked: true, onchange: (/** @type {Event} */ event) => {
        view[key] = /** @type {HTMLInputElement} */ (event.target).checked;
        view.choose();
        recount();
      } }), ` ${name}`);
    recount();
    return el("div", { class: "two" },
      el("div", { class: "stack" }, view.canvas,
        el("p", { class: "legend" },
          el("span", {}, el("i", { class: "agree" }), "agrees with the pose"), el("span", {}, el("i", { class: "differ" }), "scored well only"),
          el("span", {}, "brighter: higher score; point at a match for its epipolar line")), view.told),
      el("div", { class: "panel controls" }, counts, threshold, el("div", { class: "toggles" }, toggle("those that agree", "agree"), toggle("those that do not", "differ")), pose(found)));
  }

  /** @param {any} found */
  function pose(found) {
    const numbers = (/** @type {number[]} */ row) => el("tr", {}, ...row.map((value) => el("td", {}, value.toFixed(4))));
    return el("div", { class: "pose" }, el("h2", {}, "How the camera moved"),
      el("p", {}, found.words ?? "No pose: too few matches agree with one."),
      found.pose && el("table", {}, el("caption", { class: "hint" }, "Rotation R"), el("tbody", {}, ...found.pose.rotation.map(numbers))),
      found.pose && el("table", {}, el("caption", { class: "hint" }, "Translation t, of length 1"), el("tbody", {}, numbers(found.pose.translation))),
      ...found.images.map((/** @type {any} */ image) => el("p", { class: "hint" }, `${image.name}: focal length ${image.K[0][0].toFixed(0)} pixels, ${image.camera}`)),
      ...found.notes.map((/** @type {string} */ note) => el("p", { class: "hint" }, note)));
  }

  state.addEventListener("change", update);
  update();
  root.dataset.state = "empty";
  return { enter: update, drop: dropped };
}
