// @ts-check
import { el, find } from "./dom.js";

const ACCEPT = ".png,.jpg,.jpeg,.tif,.tiff,.webp,.bmp,.dng,.cr2,.cr3,.nef,.arw,.raf,.orf,.rw2,.pef,.srw,image/*";

/** Photographs that are dropped anywhere on the page, or pasted. @param {(files: File[]) => void} take */
export function acceptDrops(take) {
  const curtain = /** @type {HTMLElement} */ (find(document, "#drop"));
  let depth = 0;
  const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (hasFiles(event)) curtain.hidden = !++depth;
  });
  addEventListener("dragleave", (event) => {
    if (hasFiles(event)) curtain.hidden = --depth <= 0;
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    curtain.hidden = true;
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) take(files);
  });
  addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) take(files);
  });
}

/**
 * A button that opens the system's dialog for files.
 * @param {string} words @param {(files: File[]) => void} take @param {string} [kind] class names
 */
export function fileButton(words, take, kind = "button") {
  const input = el("input", {
    type: "file", multiple: true, accept: ACCEPT, class: "unseen", tabindex: "-1", "aria-label": words,
    onchange: () => {
      take([...(input.files ?? [])]);
      input.value = "";
    },
  });
  const button = el("button", { type: "button", class: kind, onclick: () => input.click() }, words);
  return el("span", { class: "file-button" }, button, input);
}

/**
 * A list from which one of the photographs that are there is chosen.
 * @param {import("./state.js").State} state @param {string} name @param {(id: string) => void} change
 */
export function photoSelect(state, name, change) {
  const select = el("select", { "aria-label": name, onchange: () => change(select.value) });
  const fill = () => {
    const known = state.files.filter((file) => file.kind !== "raw" || name === "Photograph");
    const before = select.value;
    select.replaceChildren(
      ...(known.length ? [] : [el("option", { value: "" }, "none yet")]),
      ...known.map((file) => el("option", { value: file.id }, file.name)),
    );
    if (known.some((file) => file.id === before)) select.value = before;
    select.disabled = !known.length;
  };
  state.addEventListener("change", fill);
  fill();
  return select;
}
