// @ts-check
import { Look } from "./look.js";
import { Explorer } from "./explorer.js";

/** The script of a file that n3net inspect wrote: its data stands in the file itself. */
const lookText = atob(/** @type {HTMLElement} */ (document.getElementById("data")).textContent ?? "");
const lookBytes = Uint8Array.from(lookText, (character) => character.charCodeAt(0));
const lookRoot = /** @type {HTMLElement} */ (document.getElementById("explorer"));
Object.assign(window, { explorer: new Explorer(lookRoot, new Look(lookBytes.buffer)) });
