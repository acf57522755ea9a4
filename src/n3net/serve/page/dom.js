// @ts-check
/** Elements in a line, and words for those who do not see the page. */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props] attributes, "on..." listeners, and properties like textContent
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string") /** @type {any} */ (node)[name] = value;
    else if (name === "textContent" || name === "value") /** @type {any} */ (node)[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== undefined && child !== false)));
  return node;
}

/** @template {Element} T @param {ParentNode} root @param {string} selector @returns {T} */
export function find(root, selector) {
  const found = root.querySelector(selector);
  if (!found) throw new Error(`nothing matches ${selector}`);
  return /** @type {T} */ (found);
}

/** For screen readers. @param {string} words */
export function say(words) {
  find(document, "#said").textContent = words;
}

/**
 * A group of radio buttons that look like one switch.
 * @param {string} legend @param {string} name @param {[string, string][]} options @param {string} value
 * @param {(value: string) => void} change
 */
export function choice(legend, name, options, value, change) {
  return el(
    "fieldset",
    { class: "choice", "data-choice": name },
    el("legend", {}, legend),
    ...options.map(([key, text]) =>
      el("label", {}, el("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }), el("span", {}, text)),
    ),
  );
}

/**
 * A slider with its name and value above it.
 * @param {string} name @param {{min: number, max: number, step: number, value: number}} range
 * @param {(value: number) => string} text @param {(value: number) => void} change
 */
export function slider(name, range, text, change) {
  const output = el("output", {}, text(range.value));
  const input = el("input", {
    type: "range", min: String(range.min), max: String(range.max), step: String(range.step), "aria-label": name,
    oninput: () => {
      output.value = text(Number(input.value));
      input.setAttribute("aria-valuetext", output.value);
      change(Number(input.value));
    },
  });
  input.value = String(range.value);
  input.setAttribute("aria-valuetext", text(range.value));
  return el("label", { class: "range" }, el("span", {}, name, output), input);
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return "a moment";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** A place where something is computed. @param {string} words */
export function waiting(words) {
  return el("div", { class: "waiting", role: "status" }, el("span", { class: "spinner", "aria-hidden": "true" }), el("p", {}, words));
}

/** What went wrong, in the command line's words. @param {string} words @param {(() => void)} [again] */
export function failure(words, again) {
  return el(
    "div",
    { class: "failure", role: "alert" },
    el("p", {}, words),
    again && el("button", { type: "button", class: "button", onclick: again }, "Try again"),
  );
}
