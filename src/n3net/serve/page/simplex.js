// @ts-check
import { choice, el, slider } from "./dom.js";
import { selectWeights } from "./selection.js";

const NS = "http://www.w3.org/2000/svg";
const SIDE = 400;
const COLORS = ["#2f7fd1", "#c2548a", "#2a9d7c"];
const CORNERS = [[50, 340], [350, 340], [200, 340 - 150 * Math.sqrt(3)]];
const STEP = 1e-6; // of numerical derivatives
const NUMBERS = ["first", "second", "third"];

/** @param {string} tag @param {Record<string, any>} attributes @param {...(Node | string)} children @returns {SVGElement} */
function svg(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** The paper's first figure, alive. @param {HTMLElement} root */
export function open(root) {
  new Selection(root);
}

class Selection {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** The query, then three items, on a square of SIDE. */
    this.points = [[110, 205], [65, 130], [360, 125], [195, 350]];
    this.log = -1; // of the temperature, to the base 10, where distances are of 0 to about 1
    this.k = 3;
    this.form = "tempered";
    this.root = root;
    this.plane = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plane", role: "group", "aria-label": "The query and the items. Drag them, or focus one and use the arrow keys." });
    this.simplex = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plane", role: "img" });
    this.table = el("table", { class: "weights" });
    this.#build();
    this.#handles();
    this.draw();
  }

  #build() {
    const change = () => this.draw();
    this.root.append(
      el("div", { class: "intro" }, el("h1", {}, "Choosing neighbours, softly"),
        el("p", {}, "Each neighbour is a mixture of all items; the corners of the triangle are single items. As the temperature falls, the walk from the first to the third neighbour reaches the corners, and the gradient fades. Drag the points.")),
      el("div", { class: "simplex" },
        el("figure", {}, this.plane, el("figcaption", {}, "Query q and items x; lines are distances")),
        el("figure", {}, this.simplex, el("figcaption", {}, "Weights of neighbours 1 to k, and where hard KNN would be (rings)")),
        el("div", { class: "panel controls stack" },
          choice("Selection", "simplex-form", [["tempered", "Paper"], ["untempered", "2018"], ["hard", "Hard KNN"]], this.form, (form) => {
            this.form = form;
            change();
          }),
          slider("Temperature t", { min: -2.5, max: 1, step: 0.05, value: this.log }, (v) => (10 ** v).toPrecision(2), (value) => {
            this.log = value;
            change();
          }),
          slider("Neighbours k", { min: 1, max: 3, step: 1, value: this.k }, String, (value) => {
            this.k = value;
            change();
          }),
          this.table,
          el("p", { class: "hint" }, "The gradient is the largest change of a weight for a change of a distance. Where it is 0, nothing can be learned from the choice."))),
    );
  }

  #handles() {
    this.handles = this.points.map((_, i) => {
      const name = i ? `Item ${i}` : "Query";
      const handle = svg("g", { class: i ? "item" : "query", tabindex: 0, role: "button", "aria-label": `${name}, movable by arrow keys` },
        i ? svg("circle", { r: 13, fill: COLORS[i - 1] }) : svg("path", { d: star(17, 7), fill: "#e05a2b" }),
        svg("circle", { r: 24, fill: "transparent" }));
      handle.addEventListener("pointerdown", (event) => {
        handle.setPointerCapture(/** @type {PointerEvent} */ (event).pointerId);
        this.dragged = i;
      });
      handle.addEventListener("pointermove", (event) => {
        if (this.dragged !== i) return;
        const box = this.plane.getBoundingClientRect();
        const { clientX, clientY } = /** @type {PointerEvent} */ (event);
        this.#move(i, ((clientX - box.left) / box.width) * SIDE, ((clientY - box.top) / box.height) * SIDE);
      });
      for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => (this.dragged = -1));
      handle.addEventListener("keydown", (event) => {
        const { key, shiftKey } = /** @type {KeyboardEvent} */ (event);
        const step = /** @type {Record<string, number[]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] })[key];
        if (!step) return;
        event.preventDefault();
        const by = shiftKey ? 20 : 5;
        this.#move(i, this.points[i][0] + step[0] * by, this.points[i][1] + step[1] * by);
      });
      return handle;
    });
    this.under = svg("g", {});
    this.plane.append(this.under, ...this.handles);
  }

  /** @param {number} i @param {number} x @param {number} y */
  #move(i, x, y) {
    this.points[i] = [x, y].map((value) => Math.min(Math.max(value, 20), SIDE - 20));
    this.draw();
  }

  /** From the query to each item, in sides of the square. */
  get distances() {
    const [[x, y], ...items] = this.points;
    return items.map(([a, b]) => Math.hypot(a - x, b - y) / SIDE);
  }

  /** @param {number[]} distances @param {string} [form] */
  weights(distances, form = this.form) {
    const inverse = 1 / 10 ** this.log;
    return selectWeights(distances, this.k, { scale: inverse, strength: form === "untempered" ? 1 : inverse, rule: form === "hard" ? "hard" : "continuous" });
  }

  /** Of each neighbour, the largest derivative of a weight with respect to a distance. */
  gradients() {
    if (this.form === "hard") return Array(this.k).fill(0);
    const { distances } = this;
    const largest = Array(this.k).fill(0);
    distances.forEach((_, m) => {
      const moved = (/** @type {number} */ by) => this.weights(distances.map((d, i) => (i === m ? d + by : d)));
      const [up, down] = [moved(STEP), moved(-STEP)];
      up.forEach((row, j) => row.forEach((w, i) => (largest[j] = Math.max(largest[j], Math.abs(w - down[j][i]) / (2 * STEP)))));
    });
    return largest;
  }

  draw() {
    const { distances } = this;
    const weights = this.weights(distances);
    this.#drawPlane(distances);
    this.#drawSimplex(weights, this.weights(distances, "hard"));
    this.#drawTable(weights, this.gradients());
  }

  /** @param {number[]} distances */
  #drawPlane(distances) {
    const [[x, y], ...items] = this.points;
    this.under?.replaceChildren(
      ...items.flatMap(([a, b], i) => [
        svg("line", { x1: x, y1: y, x2: a, y2: b, stroke: "var(--line)", "stroke-width": 2 }),
        svg("text", { x: (x + a) / 2, y: (y + b) / 2 - 5, class: "soft", "text-anchor": "middle" }, distances[i].toFixed(2)),
        svg("text", { x: a + 17, y: b - 10 }, `x${"₁₂₃"[i]}`),
      ]),
      svg("text", { x: x - 30, y: y + 5 }, "q"),
    );
    this.handles?.forEach((handle, i) => handle.setAttribute("transform", `translate(${this.points[i].join(" ")})`));
  }

  /** @param {Float64Array[]} weights @param {Float64Array[]} hard */
  #drawSimplex(weights, hard) {
    const place = (/** @type {Float64Array} */ row) => [0, 1].map((axis) => row.reduce((sum, w, i) => sum + w * CORNERS[i][axis], 0));
    const points = weights.map(place);
    const wrong = hard.map(place);
    this.simplex.setAttribute("aria-label", `Weights: ${weights.map((row, j) => `neighbour ${j + 1}: ${[...row].map((w) => w.toFixed(2)).join(", ")}`).join("; ")}`);
    this.simplex.replaceChildren(
      svg("polygon", { points: CORNERS.join(" "), fill: "var(--sunk)", stroke: "var(--line)", "stroke-width": 2 }),
      ...CORNERS.map(([x, y], i) => svg("text", { x: x + [-26, 10, 0][i], y: y + [18, 18, -12][i], "text-anchor": i === 2 ? "middle" : "start", fill: COLORS[i] }, `x${"₁₂₃"[i]}`)),
      ...wrong.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 14, fill: "none", stroke: "var(--soft)", "stroke-width": 1.5, "stroke-dasharray": "3 3" })),
      svg("polyline", { points: points.join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": 3, "stroke-linejoin": "round" }),
      ...points.flatMap(([x, y], j) => [
        svg("circle", { cx: x, cy: y, r: 10, fill: "var(--accent)" }),
        svg("text", { x, y: y + 4.5, "text-anchor": "middle", class: "number" }, String(j + 1)),
      ]),
    );
  }

  /** @param {Float64Array[]} weights @param {number[]} gradients */
  #drawTable(weights, gradients) {
    const bar = (/** @type {number} */ part, /** @type {string} */ color) => {
      const fill = el("i");
      fill.style.width = `${Math.min(1, part) * 100}%`;
      if (color) fill.style.background = color;
      return el("span", { class: "meter" }, fill);
    };
    this.table.replaceChildren(
      el("thead", {}, el("tr", {}, el("td"), ...[1, 2, 3].map((i) => el("th", { scope: "col" }, `x${"₁₂₃"[i - 1]}`)), el("th", { scope: "col" }, "gradient"))),
      el("tbody", {}, ...weights.map((row, j) => el("tr", {},
        el("th", { scope: "row" }, NUMBERS[j]),
        ...Array.from(row, (w, i) => el("td", {}, w.toFixed(2), bar(w, COLORS[i]))),
        el("td", { class: "gradient" }, gradients[j] >= 0.005 ? gradients[j].toFixed(2) : gradients[j] ? gradients[j].toExponential(0) : "0", bar(Math.max(0, (Math.log10(gradients[j] + 1e-9) + 4) / 5), ""))))),
    );
  }
}

/** The outline of a star. @param {number} outer @param {number} inner */
function star(outer, inner) {
  const points = Array.from({ length: 10 }, (_, i) => {
    const radius = i % 2 ? inner : outer;
    const angle = (Math.PI * i) / 5 - Math.PI / 2;
    return `${(radius * Math.cos(angle)).toFixed(2)},${(radius * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${points.join("L")}Z`;
}
