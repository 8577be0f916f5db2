
// User input: choosing with mouse, keys and links. Comes after attention_page.js.

// A notebook frame has no address of its own and may not change the notebook's.
const linkable = location.protocol !== "about:";
let linking;

/** Changes what is shown; indices that the new map lacks move to its nearest ones. */
function show(change) {
  state = { ...state, ...change };
  pointedAt = null; // A resting pointer must not hide what the keys choose.
  const map = maps[state.map];
  state.layer = clamp(state.layer, map.layers);
  state.head = clamp(state.head, map.heads + 1);
  state.token = clamp(state.token, map.queries.length);
  render();
  clearTimeout(linking); // Browsers refuse frequent changes of the address.
  if (linkable) linking = setTimeout(() => history.replaceState(null, "", toHash()), 150);
}

function point(token) {
  pointedAt = token;
  render();
}

function toHash() {
  const head = state.head === maps[state.map].heads ? "all" : state.head;
  return `#map=${state.map}&layer=${state.layer}&head=${head}&token=${state.token}`;
}

/** Reads the fragment of a link; missing or invalid parts get the defaults of a new page. */
function fromHash(hash) {
  const link = new URLSearchParams(hash.slice(1));
  const read = (key, size, otherwise) => {
    const number = Number(link.get(key) || NaN);
    return Number.isInteger(number) && number >= 0 && number < size ? number : otherwise;
  };
  const index = read("map", maps.length, 0);
  const map = maps[index];
  return {
    map: index,
    layer: read("layer", map.layers, 0),
    head: link.get("head") === "all" ? map.heads : read("head", map.heads, 0),
    // In a causal decoder, the first token sees only itself; late tokens of a long text are far down.
    token: read("token", map.queries.length, Math.min(6, Math.floor(map.queries.length / 2))),
  };
}

/** Binds keys within an element: for each key, a function that returns the change. */
function bindKeys(element, changes) {
  element.addEventListener("keydown", (event) => {
    const change = changes[event.key];
    if (!change || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    show(change());
    element.querySelector("[aria-selected=true]").focus();
  });
}

const headKeys = {
  ArrowLeft: () => ({ head: state.head - 1 }),
  ArrowRight: () => ({ head: state.head + 1 }),
};
bindKeys($("overview"), {
  ...headKeys,
  ArrowUp: () => ({ layer: state.layer - 1 }),
  ArrowDown: () => ({ layer: state.layer + 1 }),
});
bindKeys($("queries"), {
  ...headKeys,
  ArrowUp: () => ({ token: state.token - 1 }),
  ArrowDown: () => ({ token: state.token + 1 }),
  Home: () => ({ token: 0 }),
  End: () => ({ token: Infinity }),
  PageUp: () => ({ layer: state.layer - 1 }),
  PageDown: () => ({ layer: state.layer + 1 }),
});

/** Finds the query and the key of the cell under an event. */
function cellOf(event) {
  const map = maps[state.map];
  const box = $("cells").getBoundingClientRect();
  return {
    query: clamp(Math.floor(((event.clientY - box.top) / box.height) * map.queries.length), map.queries.length),
    key: clamp(Math.floor(((event.clientX - box.left) / box.width) * map.keys.length), map.keys.length),
  };
}

$("cells").addEventListener("pointermove", (event) => {
  const map = maps[state.map];
  const { query, key } = cellOf(event);
  const weight = weightsOf(map, state.layer, state.head)[query * map.keys.length + key];
  if (query !== pointedAt) point(query);
  $("reading").textContent =
    `${percent(weight)}: ${quote(map.queries[query])} looks at ${quote(map.keys[key])}`;
});
$("cells").addEventListener("pointerleave", () => point(null));
$("cells").addEventListener("click", (event) => show({ token: cellOf(event).query }));

function recolour() {
  ramp = makeRamp();
  $("theme").textContent = theme() === "dark" ? "Light colors" : "Dark colors";
  paint($("ramp"), Float32Array.from({ length: 256 }, (_, i) => (i / 255) ** 2), 1, 256);
  paintOverview(maps[state.map]);
  render();
}
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  recolour();
});
prefersDark.addEventListener("change", recolour);
addEventListener("hashchange", (event) => {
  // Not location.hash: a pending `linking` may have replaced it since.
  show(fromHash(new URL(event.newURL).hash));
  revealToken();
});

$("link-hint").hidden = !linkable;
buildMapChoice();
state = fromHash(location.hash);
render();
recolour();
