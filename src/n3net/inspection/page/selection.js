// @ts-check
/**
 * Eqs. 1-2 and 8-11 of the paper for one query, in double precision: what n3net.select computes, for a page that has to
 * answer while a mouse moves. Tests compare it with n3net.select.
 */

/** At most one weight of a row lies above; below, log1p(-w) has all its digits. */
const PEAK = 0.6;
/** Beyond it, what was chosen ranks below the rest. */
const BEYOND = 1e300;

/**
 * Weights of the k neighbours of a query.
 * @param {ArrayLike<number>} distances M of them, Infinity where there is no candidate
 * @param {number} k
 * @param {{scale: number, strength: number, rule?: string}} how logits are -scale d; strength multiplies the update of
 *   Eq. 9: 1 / t in the paper's form, 1 in that of the 2018 program; rule is "continuous" or "hard"
 * @returns {Float64Array[]} k rows of M weights
 */
export function selectWeights(distances, k, { scale, strength, rule = "continuous" }) {
  let nearest = Infinity;
  for (let i = 0; i < distances.length; i++) nearest = Math.min(nearest, distances[i]);
  const z = Float64Array.from(distances, (d) => (d === Infinity ? -Infinity : -scale * (d - nearest)));
  return rule === "hard" ? hardWeights(z, k) : continuousWeights(z, k, strength);
}

/**
 * @param {Float64Array} z logits
 * @param {number} k
 * @returns {Float64Array[]} one 1 in each row, the largest logit first; ties in the order of the candidates
 */
function hardWeights(z, k) {
  const order = Array.from(z.keys())
    .filter((i) => z[i] > -Infinity)
    .sort((a, b) => z[b] - z[a] || a - b);
  return Array.from({ length: k }, (_, j) => {
    const row = new Float64Array(z.length);
    row[order[j % order.length]] = 1;
    return row;
  });
}

/**
 * @param {Float64Array} z logits
 * @param {number} k
 * @param {number} strength
 * @returns {Float64Array[]}
 */
function continuousWeights(z, k, strength) {
  const rows = [];
  for (let j = 0; j < k; j++) {
    const { weights, logOneMinus } = softmax(z);
    rows.push(weights);
    z = z.map((value, i) =>
      value === -Infinity ? value : Math.max(value + strength * logOneMinus[i], -BEYOND),
    );
    const top = z.reduce((a, b) => Math.max(a, b), -Infinity);
    z = z.map((value) => value - top);
  }
  return rows;
}

/**
 * Weights that sum to 1, and log(1 - w) of each, which for the largest is the logarithm of the sum of the others.
 * @param {Float64Array} z
 */
function softmax(z) {
  let top = 0;
  for (let i = 1; i < z.length; i++) if (z[i] > z[top]) top = i;
  let second = -Infinity;
  for (let i = 0; i < z.length; i++) if (i !== top) second = Math.max(second, z[i]);
  let others = 0;
  for (let i = 0; i < z.length; i++) if (i !== top) others += Math.exp(z[i] - Math.max(second, -BEYOND));
  const logRest = second - z[top] + Math.log(others); // of all but the largest, against it; small numbers keep their digits
  const logSum = Math.log1p(Math.exp(logRest));
  const weights = z.map((value) => Math.exp(value - z[top] - logSum));
  const logOneMinus = weights.map((w, i) =>
    i === top && w > PEAK ? Math.max(logRest - logSum, -BEYOND) : Math.log1p(-w),
  );
  return { weights, logOneMinus };
}
