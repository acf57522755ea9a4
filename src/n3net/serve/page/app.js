// @ts-check
import { takeToken } from "./api.js";
import { el, failure, find } from "./dom.js";
import { acceptDrops } from "./files.js";
import { State } from "./state.js";

/** Rooms by the fragment of the address; each is a module that fills its section when it is first entered. */
const ROOMS = {
  restore: () => import("./restore.js"),
  neighbours: () => import("./neighbours.js"),
  match: () => import("./match.js"),
  selection: () => import("./simplex.js"),
};

/** @typedef {{state: State, photo: string}} Shared what rooms share; photo is the one that is looked at */

/** @type {Map<string, {enter?: () => void, drop?: (photos: import("./state.js").Photo[]) => void}>} */
const entered = new Map();

async function start() {
  setUpTheme();
  if (!takeToken()) {
    const words = "This page needs the whole address that n3net serve printed in the terminal, with the token at its end.";
    find(document, "#rooms").replaceChildren(el("section", { class: "alone-note" }, el("h1", {}, "Almost there"), el("p", {}, words)));
    return;
  }
  const state = new State();
  /** @type {Shared} */
  const shared = { state, photo: "" };
  const follow = () => enter(shared).catch((error) => find(document, "#rooms").append(failure(error.message)));
  state.addEventListener("change", () => {
    const trouble = find(document, "#trouble");
    trouble.toggleAttribute("hidden", !state.trouble);
    trouble.textContent = state.trouble;
  });
  addEventListener("hashchange", follow);
  acceptDrops(async (files) => {
    const photos = await state.add(files);
    if (photos.length) entered.get(roomName())?.drop?.(photos);
  });
  state.follow();
  await follow();
}

/** @returns {keyof typeof ROOMS} */
function roomName() {
  const name = location.hash.slice(1);
  return name in ROOMS ? /** @type {keyof typeof ROOMS} */ (name) : "restore";
}

/** @param {Shared} shared */
async function enter(shared) {
  const name = roomName();
  for (const section of document.querySelectorAll("main > section")) section.toggleAttribute("hidden", section.id !== name);
  for (const link of document.querySelectorAll(".rooms a")) {
    if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `n3net – ${find(document, `.rooms a[href="#${name}"]`).textContent}`;
  if (!entered.has(name)) {
    const module = await ROOMS[name]();
    if (!entered.has(name)) entered.set(name, module.open(find(document, `#${name}`), shared) ?? {});
  }
  entered.get(name)?.enter?.();
}

function setUpTheme() {
  const root = document.documentElement;
  const set = (/** @type {string} */ theme) => {
    root.dataset.theme = theme;
    root.dispatchEvent(new Event("theme"));
  };
  const kept = localStorage.getItem("n3net-theme");
  if (kept) set(kept);
  find(document, "#theme").addEventListener("click", () => {
    const dark = getComputedStyle(root).colorScheme === "light dark" ? matchMedia("(prefers-color-scheme: dark)").matches : root.dataset.theme === "dark";
    const theme = dark ? "light" : "dark";
    localStorage.setItem("n3net-theme", theme);
    set(theme);
  });
}

start();
