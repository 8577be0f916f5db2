
"use strict";
// What the page shows. State flows one way: the user changes it through `show`, defined in the next
// file of the page, attention_page_use.js, and `render` writes all of it to the page.

const $ = (id) => document.getElementById(id);
const maps = JSON.parse($("data").textContent).map((map) => ({ ...map, weights: unpack(map) }));

// What is shown, counted from 0 as in the arrays. The head after the last averages all heads.
let state = { map: 0, layer: 0, head: 0, token: 0 };
let pointedAt = null; // The token under the pointer, if any: shown, but not chosen.

const RAMPS = {
  light: ["#ffffff", "#d6e6f7", "#8fbbe6", "#3f80c8", "#123f86", "#071f47"],
  dark: ["#161d25", "#1d3a5c", "#2f659f", "#5f9fe0", "#aed4fb", "#f4faff"],
};

// --- Data ---

/** Reads little-endian 16-bit weights; every machine that runs a browser is little-endian. */
function unpack(map) {
  const bytes = Uint8Array.from(atob(map.weights), (letter) => letter.charCodeAt(0));
  return Float32Array.from(new Uint16Array(bytes.buffer), (steps) => steps / 65535);
}

/** Returns the weights of a head, or the mean of all heads: rows are queries, columns are keys. */
function weightsOf(map, layer, head) {
  const size = map.queries.length * map.keys.length;
  const ofHead = (h) => map.weights.subarray((layer * map.heads + h) * size).subarray(0, size);
  if (head < map.heads) return ofHead(head);
  const mean = new Float32Array(size);
  for (let h = 0; h < map.heads; h++) ofHead(h).forEach((w, i) => { mean[i] += w / map.heads; });
  return mean;
}

const percent = (weight) => `${(100 * weight).toFixed(1)}\u202f%`;

/** Quotes a token; of a long one, only the start, so that sentences stay short. */
function quote(token) {
  const letters = [...token];
  return `“${letters.length > 18 ? `${letters.slice(0, 16).join("")}…` : token}”`;
}

const count = (number, singular, plural) => `${number} ${number === 1 ? singular : plural}`;
const headName = (map, head) => (head === map.heads ? "all heads averaged" : `head ${head}`);
const clamp = (value, size) => Math.max(0, Math.min(size - 1, value));

// --- Colors ---

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light");

/** Makes 256 colors, indexed by the square root of a weight, so that small weights differ visibly. */
function makeRamp() {
  const stops = RAMPS[theme()].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((channel, c) => channel + (stops[low + 1][c] - channel) * (place - low));
  });
}
let ramp = makeRamp();

function paint(canvas, weights, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  weights.forEach((weight, i) => {
    const [red, green, blue] = ramp[Math.round(255 * Math.sqrt(weight))];
    image.data[4 * i] = red;
    image.data[4 * i + 1] = green;
    image.data[4 * i + 2] = blue;
    image.data[4 * i + 3] = 255;
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// --- Building the parts that depend only on the map ---

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** A token keeps its own writing direction; its title has the full text if it is cut off. */
const makeToken = (name, token, properties = {}) =>
  make(name, { title: token, ...properties }, make("bdi", {}, token));

/** A query; for a decoder, with the next token: "cat → sat". */
function makeQuery(map, index, properties) {
  const token = map.queries[index];
  if (!map.next) return makeToken("li", token, properties);
  const item = makeToken("li", token, { ...properties, title: `${token} → ${map.next[index]}` });
  item.append(make("span", { className: "next" }, " → ", make("bdi", {}, map.next[index])));
  return item;
}

function buildMapChoice() {
  $("maps").hidden = maps.length === 1;
  maps.forEach((map, index) => {
    const input = make("input", { type: "radio", name: "map", onchange: () => show({ map: index }) });
    $("maps").append(make("label", {}, input, map.name));
  });
}

function buildOverview(map) {
  const heads = Array.from({ length: map.heads + 1 }, (_, head) => head);
  const headings = heads.map((head) =>
    make("th", { scope: "col" }, head === map.heads ? "all" : `${head}`));
  const rows = Array.from({ length: map.layers }, (_, layer) => {
    const cells = heads.map((head) => make("td", {
      role: "gridcell",
      ariaLabel: `Layer ${layer}, ${headName(map, head)}`,
      onclick: () => show({ layer, head }),
    }, make("canvas", { ariaHidden: "true" })));
    return make("tr", {}, make("th", { scope: "row" }, `${layer}`), ...cells);
  });
  $("overview").replaceChildren(make("tr", {}, make("td", {}), ...headings), ...rows);
}

function paintOverview(map) {
  $("overview").querySelectorAll("canvas").forEach((canvas, i) => {
    const [layer, head] = [Math.floor(i / (map.heads + 1)), i % (map.heads + 1)];
    paint(canvas, weightsOf(map, layer, head), map.queries.length, map.keys.length);
  });
}

function buildTokens(map) {
  $("next-hint").hidden = !map.next;
  document.querySelector(".sides").classList.toggle("predicts", map.next !== null);
  $("queries").replaceChildren(...map.queries.map((_, index) => makeQuery(map, index, {
    role: "option",
    onclick: () => show({ token: index }),
    onpointerenter: (event) => { if (event.pointerType === "mouse") point(index); },
    onpointerleave: () => point(null),
  })));
  $("keys").tBodies[0].replaceChildren(...map.keys.map((token) => make("tr", {},
    makeToken("th", token, { scope: "row" }),
    make("td"),
    make("td", { className: "bar", ariaHidden: "true" }, make("i", {}, make("b"))))));
  const rows = Math.max(map.queries.length, map.keys.length);
  $("lines").setAttribute("viewBox", `0 0 1 ${rows}`);
  $("lines").style.height = `calc(${rows} * var(--row))`;
}

/** The width of the widest token, in em; rotated labels do not reserve their own space. */
function longest(tokens) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `100px ${getComputedStyle(document.body).fontFamily}`;
  return Math.max(...tokens.map((token) => pen.measureText(token).width)) / 100;
}

function buildHeat(map) {
  $("rows").replaceChildren(...map.queries.map((token) => makeToken("li", token)));
  $("columns").replaceChildren(...map.keys.map((token) => makeToken("li", token)));
  $("heat").style.setProperty("--rows", map.queries.length);
  $("heat").style.setProperty("--columns", map.keys.length);
  $("heat").style.setProperty("--longest-row", longest(map.queries));
  $("heat").style.setProperty("--longest-column", longest(map.keys));
}

// --- Rendering ---

let built = null;

function render() {
  const map = maps[state.map];
  if (built !== map) {
    built = map;
    $("kind").textContent = `${map.name}; ${count(map.layers, "layer", "layers")} of ` +
      `${count(map.heads, "head", "heads")}; ` +
      `${count(map.queries.length, "token looks", "tokens look")} at ${map.keys.length}`;
    buildOverview(map);
    paintOverview(map);
    buildTokens(map);
    buildHeat(map);
    revealToken();
  }
  const query = pointedAt ?? state.token;
  const columns = map.keys.length;
  const matrix = weightsOf(map, state.layer, state.head);
  const weights = matrix.subarray(query * columns, (query + 1) * columns);
  const name = `Layer ${state.layer}, ${headName(map, state.head)}`;
  $("maps").querySelectorAll("input").forEach((input, i) => { input.checked = i === state.map; });
  choose($("overview").querySelectorAll("[role=gridcell]"), state.layer * (map.heads + 1) + state.head);
  $("view-title").textContent = name;
  $("status").textContent = sentence(map, query, weights);
  choose($("queries").children, state.token);
  renderWeights(weights);
  renderLines(query, weights);
  renderHeat(map, matrix, query, name);
}

/** Scrolls the list to the chosen token if needed; the page itself does not scroll. */
function revealToken() {
  const list = document.querySelector(".sides");
  const token = $("queries").children[state.token].getBoundingClientRect();
  const seen = list.getBoundingClientRect();
  list.scrollTop += Math.min(0, token.top - seen.top) + Math.max(0, token.bottom - seen.bottom);
}

/** Marks one element as selected; Tab reaches only that one, arrow keys reach the others. */
function choose(elements, chosen) {
  [...elements].forEach((element, index) => {
    element.ariaSelected = String(index === chosen);
    element.tabIndex = index === chosen ? 0 : -1;
  });
}

function sentence(map, query, weights) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  const most = order.slice(0, 3).filter((key) => weights[key] >= 0.0005);
  const looks = most.map((key) => `${quote(map.keys[key])} ${percent(weights[key])}`).join(", ");
  return `${quote(map.queries[query])} looks ${looks ? `most at ${looks}` : "at no token"}.`;
}

function renderWeights(weights) {
  const strongest = weights.indexOf(Math.max(...weights));
  [...$("keys").tBodies[0].rows].forEach((row, key) => {
    row.className = key === strongest && weights[key] > 0 ? "strongest" : "";
    row.cells[1].textContent = percent(weights[key]);
    row.querySelector("b").style.width = `${100 * weights[key]}%`;
  });
}

function renderLines(query, weights) {
  const lines = [];
  weights.forEach((weight, key) => {
    if (weight < 0.005) return;
    const line = document.createElementNS($("lines").namespaceURI, "path");
    line.setAttribute("d", `M0 ${query + 0.5}C.5 ${query + 0.5} .5 ${key + 0.5} 1 ${key + 0.5}`);
    line.setAttribute("stroke-width", 1 + 5 * weight);
    line.setAttribute("stroke-opacity", Math.sqrt(weight));
    lines.push(line);
  });
  $("lines").replaceChildren(...lines);
}

function renderHeat(map, matrix, query, name) {
  const canvas = $("cells").querySelector("canvas");
  paint(canvas, matrix, map.queries.length, map.keys.length);
  canvas.ariaLabel = `Heat map of ${map.name}, ${name}: ${map.queries.length} tokens that look, ` +
    `${map.keys.length} that are looked at. The table of weights has the numbers of each row.`;
  $("chosen-row").style.top = `calc(${query} * var(--cell))`;
  [...$("rows").children].forEach((row, i) => row.classList.toggle("chosen", i === query));
  [...$("queries").children].forEach((row, i) => row.classList.toggle("previewed", i === pointedAt));
  if (pointedAt === null) $("reading").textContent = "Point at a cell to read its weight.";
}
