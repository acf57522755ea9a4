// @ts-check
/** Requests to the server, each with the token that the address of the page brought along. */

const KEY = "n3net-token";

/** Keep the token for this tab, and take it out of the address bar and the history. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", `${location.pathname}#restore`);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/** What the server refused, in its words. */
export class ApiError extends Error {
  /** @param {string} words @param {number} status 0 where the server did not answer at all */
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

/**
 * @param {string} method @param {string} path
 * @param {{json?: any, body?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function call(method, path, { json, body, headers = {}, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method, signal, body: json === undefined ? body : JSON.stringify(json), cache: "no-store", credentials: "omit",
      headers: { ...headers, "X-N3net-Token": sessionStorage.getItem(KEY) ?? "" },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer. Is n3net serve still running?", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new ApiError(answer.error ?? `The server answered ${response.status}.`, response.status);
}

/** @param {string} method @param {string} path @param {any} [json] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(method, path, json, signal) {
  return (await call(method, path, { json, signal })).json();
}

/**
 * Pixels that the server sends as they are.
 * @param {Response} response
 * @returns {Promise<HTMLCanvasElement | null>} null where there are none
 */
export async function pixelsOf(response) {
  const width = Number(response.headers.get("X-Width"));
  const height = Number(response.headers.get("X-Height"));
  if (!width || !height) return null;
  const rgb = new Uint8Array(await response.arrayBuffer());
  const image = new ImageData(width, height);
  for (let i = 0, j = 0; i < rgb.length; i += 3, j += 4) {
    image.data[j] = rgb[i];
    image.data[j + 1] = rgb[i + 1];
    image.data[j + 2] = rgb[i + 2];
    image.data[j + 3] = 255;
  }
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** @param {string} name @param {Response} response as a download */
export async function save(name, response) {
  const blob = await response.blob();
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
