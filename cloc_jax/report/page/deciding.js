// The sliders: they move the decision, and everything that follows from it.

const MOST_CELLS = 15 ** 2; // of a confusion matrix as a table; larger ones are drawn
const MOST_CHANGED = 21; // images shown beside the sliders
const SPOKEN_AFTER = 400; // milliseconds, so that a moving slider does not chatter

const deciding = {
  element: document.getElementById("deciding"),
  before: null, // the run's own confusion matrix
  saved: null, // labels of the saved decision
  cells: [],
  curves: [],
  timer: 0,
};

/** A flag of a command, its value quoted for a shell where it has to be. */
function flag(name, value) {
  const isPlain = /^[\w@%+=:,./-]+$/.test(value);
  return `${name}=${isPlain ? value : `'${value.replaceAll("'", `'"'"'`)}'`}`;
}

// --- what is asked for ---

function mode() {
  return deciding.element.querySelector("[name=mode]:checked").value;
}

/** The controls of a mode that are switched on, with their boundaries. */
function controls(of) {
  const rows = deciding.element.querySelectorAll(`[data-mode=${of}] .control`);
  return [...rows]
    .map((row, n) => ({ row, boundary: boundaries[n] }))
    .filter(({ row }) => row.querySelector("[name=on]").checked);
}

function shareIn(row) {
  const text = row.querySelector("[name=share]").value;
  return text === "" ? NaN : Number((Number(text) / 100).toPrecision(12));
}

/** Labels, a command and sentences for what the controls say; throws for people. */
function decision() {
  const chosen = mode();
  const command = run.deciding.command;
  for (const boundary of boundaries) boundary.threshold = undefined;
  if (chosen === "saved") {
    const said = ["The saved decision, described below, chooses the labels."];
    return { labels: deciding.saved, command: "", said };
  }
  if (chosen === "run") {
    return {
      labels: images.predicted,
      command: deciding.saved ? `${command} --remove` : "",
      said: deciding.saved
        ? ["The run’s own labels, without the saved decision."]
        : ["These are the run’s own labels; there is nothing to keep yet."],
    };
  }
  const rows = controls(chosen);
  if (!rows.length) throw new Error("Tick a boundary to decide at.");
  return chosen === "missed" ? byShare(rows, command) : byCost(rows[0], command);
}

/** The step of a slider that a share leads to; throws for people. */
function stepAt({ name, steps }, split, share) {
  const { shares } = steps[split];
  const isGuaranteed = split === "calibration";
  const source = isGuaranteed ? "calibration" : "validation";
  if (!(share >= 0 && share < 1)) {
    throw new Error(`The share that may be missed at ${name} must be from 0 and below 100%.`);
  }
  if (!shares.length) throw new Error(`No ${source} image is truly above ${name}.`);
  const step = shares.findLastIndex((used) => used <= share);
  if (step < 0) {
    const least = Math.ceil(1e4 * shares[0]) / 100;
    throw new Error(
      `With ${shares.length} calibration images above ${name}, no less than ` +
        `${general(least)}% missed can be guaranteed there.`,
    );
  }
  return step;
}

function byShare(rows, command) {
  const box = deciding.element.querySelector("[name=guarantee]");
  const split = box?.checked ? "calibration" : "val";
  const words = [command];
  const said = [];
  const moved = new Map(); // by boundary, its step and what images pass
  for (const { row, boundary } of rows) {
    const share = shareIn(row);
    const { name, steps } = boundary;
    const step = stepAt(boundary, split, share);
    const { thresholds, passed } = steps[split];
    moved.set(boundary, { step, passed });
    boundary.threshold = thresholds[step];
    words.push(flag("--boundary", name), flag("--max-missed", String(share)));
    said.push(
      `Above ${name} where P(rank above) is over ` +
        `${Number(boundary.threshold.toPrecision(4))}, from ${thresholds.length} ` +
        `${split === "val" ? "validation" : "calibration"} images above it.`,
    );
  }
  const temperature = Number(run.deciding.temperature.toPrecision(3));
  said.push(`Probabilities at temperature ${temperature}.`);
  if (split === "calibration") words.push("--guarantee");
  const labels = new images.predicted.constructor(images.count);
  for (let i = 0; i < images.count; i++) {
    let sidesOf = 0; // each boundary free, below or above, as html_page.py counts them
    for (const boundary of boundaries) {
      const at = moved.get(boundary);
      sidesOf = 3 * sidesOf + (at ? (at.step < at.passed[i] ? 2 : 1) : 0);
    }
    labels[i] = sides[sidesOf][i];
  }
  return { labels, command: words.join(" "), said };
}

function byCost({ row, boundary }, command) {
  const position = Number(row.querySelector("[type=range]").value);
  const cost = run.deciding.costs[position];
  return {
    labels: boundary.by_cost[position],
    command: `${command} ${flag("--cost", `${boundary.name}=${cost}:1`)}`,
    said: [
      `A missed image at ${boundary.name} costs ${cost}, any other mistake 1 for each ` +
        "boundary crossed; the label with the least expected cost is chosen.",
    ],
  };
}

// --- what follows ---

function refreshDecision() {
  const problem = deciding.element.querySelector(".problem");
  let found;
  try {
    found = decision();
    problem.hidden = true;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    found = { labels: images.predicted, command: "", said: [] };
  }
  images.labels = found.labels;
  const now = confusionMatrix(images.truth, found.labels, ranks.length);
  showScores(now);
  showMatrix(now);
  showChanged();
  showCommand(found);
  deciding.curves.forEach((curve, n) => {
    const { h } = boundaries[n];
    const isMoved = found.labels !== images.predicted;
    const at = (counts) => tally(counts, ranks.length, h);
    curve?.move(at(deciding.before), isMoved ? at(now) : null);
  });
  refreshTable();
}

function showScores(now) {
  const both = [deciding.before, now];
  const scores = both.map((counts) => scoresOf(counts, ranks.length));
  const rows = [
    ["accuracy", "Accuracy", scores.map((s) => [percent(s.right, s.total)])],
    ["mae", "MAE", scores.map((s) => [fixed(s.mae, 3)])],
    ["qwk", "QWK", scores.map((s) => [fixed(s.qwk, 3)])],
  ];
  for (const { name, h } of boundaries) {
    const at = both.map((counts) => tally(counts, ranks.length, h));
    rows.push([
      `missed-${h}`,
      `Missed at ${name}`,
      at.map((t) => [percent(t.missed, t.above), `${t.missed} of ${t.above}`]),
    ]);
    rows.push([
      `alarms-${h}`,
      `False alarms at ${name}`,
      at.map((t) => [percent(t.alarms, t.below), `${t.alarms} of ${t.below}`]),
    ]);
  }
  const made = rows.map(([key, title, cells]) => {
    const row = element("tr", {}, element("th", { scope: "row" }, title));
    row.dataset.score = key;
    for (const [text, more] of cells) {
      const cell = element("td", {}, element("b", {}, text));
      if (more) cell.append(element("span", { className: "ends" }, more));
      row.append(cell);
    }
    return row;
  });
  deciding.element.querySelector(".scores tbody").replaceChildren(...made);
  clearTimeout(deciding.timer);
  deciding.timer = setTimeout(() => {
    const words = rows.map(([, title, [was, is]]) => `${title} ${was[0]} to ${is[0]}`);
    deciding.element.querySelector(".said").textContent =
      images.labels === images.predicted ? "" : `${words.join("; ")}.`;
  }, SPOKEN_AFTER);
}

function showMatrix(now) {
  if (!deciding.cells.length) return drawMatrix(now);
  for (let t = 0; t < ranks.length; t++) {
    let size = 0;
    for (let k = 0; k < ranks.length; k++) size += now[t * ranks.length + k];
    for (let k = 0; k < ranks.length; k++) {
      const place = t * ranks.length + k;
      const { cell, count, change } = deciding.cells[place];
      const more = now[place] - deciding.before[place];
      count.data = String(now[place]);
      change.textContent = more ? (more > 0 ? `+${more}` : `−${-more}`) : "\u00a0";
      const share = size ? now[place] / size : 0;
      cell.style.setProperty("--share", `${Math.round(70 * share)}%`);
      cell.title = `true ${ranks[t]}, label ${ranks[k]}: ${percent(now[place], size)}`;
    }
  }
}

/** A picture in place of a table with too many cells to read. */
function drawMatrix(now) {
  const canvas = deciding.element.querySelector("canvas");
  const context = canvas.getContext("2d");
  const count = ranks.length;
  const side = canvas.width / count;
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let t = 0; t < count; t++) {
    const row = now.subarray(t * count, (t + 1) * count);
    const size = row.reduce((sum, n) => sum + n, 0);
    row.forEach((n, k) => {
      context.fillStyle = `rgb(0 114 178 / ${size ? n / size : 0})`;
      context.fillRect(k * side, t * side, Math.ceil(side), Math.ceil(side));
    });
  }
}

function makeMatrix() {
  const place = deciding.element.querySelector(".matrix .scroll");
  if (ranks.length ** 2 > MOST_CELLS) {
    const canvas = element("canvas", { width: 480, height: 480, role: "img" });
    canvas.setAttribute("aria-label", "Confusion matrix, true ranks down");
    place.replaceChildren(canvas);
    place.nextElementSibling.textContent =
      "True ranks down, labels across; the darker, the more images of a true rank.";
    return;
  }
  const head = element("tr", {}, element("th", {}, "true \\ label"));
  head.append(...ranks.map((rank) => element("th", { scope: "col" }, rank)));
  const rows = ranks.map((rank, t) => {
    const row = element("tr", {}, element("th", { scope: "row" }, rank));
    ranks.forEach((_, k) => {
      const count = document.createTextNode("");
      const change = element("span", { className: "change" });
      const cell = element("td", { className: t === k ? "right" : "" }, count, change);
      deciding.cells.push({ cell, count, change });
      row.append(cell);
    });
    return row;
  });
  const whole = element("table", {}, element("thead", {}, head));
  whole.append(element("tbody", {}, ...rows));
  place.replaceChildren(whole);
}

function changedImages() {
  const changed = [];
  for (let i = 0; i < images.count; i++) {
    if (images.labels[i] !== images.predicted[i]) changed.push(i);
  }
  return changed;
}

function showChanged() {
  const place = deciding.element.querySelector(".changed");
  const changed = changedImages();
  const isNow = (i) => images.labels[i] === images.truth[i];
  const was = (i) => images.predicted[i] === images.truth[i];
  const better = changed.filter((i) => isNow(i) && !was(i)).length;
  const worse = changed.filter((i) => !isNow(i) && was(i)).length;
  place.querySelector("p").textContent = changed.length
    ? `${changed.length} of ${images.count} images get another label: ${better} that ` +
      `were wrong are right now, ${worse} that were right are wrong.` +
      (changed.length > MOST_CHANGED ? ` The first ${MOST_CHANGED}:` : "")
    : "No image changes.";
  const cards = changed.slice(0, MOST_CHANGED).map((i) => {
    const [from, to] = [ranks[images.predicted[i]], ranks[images.labels[i]]];
    const name = element("span", { className: "name" }, images.names[i]);
    name.title = images.names[i];
    return element(
      "li",
      {},
      thumbnail(i),
      element("span", { className: "move" }, `${from} → ${to}`),
      element("span", {}, `true: ${ranks[images.truth[i]]} ${isNow(i) ? "✓" : "✗"}`),
      name,
    );
  });
  place.querySelector("ul").replaceChildren(...cards);
  place.querySelector(":scope > button").hidden = !changed.length;
}

function showCommand({ command, said }) {
  const place = deciding.element.querySelector(".keep-it");
  place.querySelector(".rule").textContent = said.join(" ");
  const copy = place.querySelector(".copy");
  copy.hidden = !command;
  // A long command breaks between its words, not at their hyphens.
  const words = command.split(" ").map((word) => {
    return element("span", { className: "word" }, word);
  });
  const spaced = words.flatMap((word, n) => (n ? [" ", word] : [word]));
  copy.querySelector("code").replaceChildren(...spaced);
  copy.querySelector("button").textContent = "Copy";
}

// --- controls ---

function setShare(row, share) {
  row.querySelector("[name=share]").value = Number((100 * share).toPrecision(12));
  const slider = row.querySelector("[type=range]");
  slider.value = share;
  slider.setAttribute("aria-valuetext", `${general(100 * share)} percent`);
}

function setCost(row, position) {
  const cost = run.deciding.costs[position];
  row.querySelector("output").textContent = general(cost);
  const slider = row.querySelector("[type=range]");
  slider.value = position;
  slider.setAttribute("aria-valuetext", `costs ${general(cost)}`);
}

/** Brings slider and number of a control together, and the decision after them. */
function controlMoved({ target }) {
  const of = target.closest("[data-mode]")?.dataset.mode;
  const row = target.closest(".control");
  if (row && target.type === "range") {
    if (of === "missed") setShare(row, Number(Number(target.value).toPrecision(12)));
    else setCost(row, Number(target.value));
  } else if (row && target.type === "number") {
    row.querySelector("[type=range]").value = shareIn(row);
  }
  if (row && !["checkbox", "radio"].includes(target.type)) {
    row.querySelector("[name=on]").checked = true;
  }
  if (of) deciding.element.querySelector(`[name=mode][value=${of}]`).checked = true;
  markMode();
  refreshDecision();
}

function markMode() {
  for (const part of deciding.element.querySelectorAll("[data-mode]")) {
    part.classList.toggle("chosen", part.dataset.mode === mode());
  }
}

async function copyCommand({ target }) {
  const code = deciding.element.querySelector(".copy code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Pages opened as files may not use the clipboard: select the text, and copy that.
    getSelection().selectAllChildren(code);
    if (!document.execCommand("copy")) {
      target.textContent = "Selected";
      return;
    }
  }
  target.textContent = "Copied";
}

function startDeciding() {
  deciding.before = confusionMatrix(images.truth, images.predicted, ranks.length);
  makeMatrix();
  for (const row of deciding.element.querySelectorAll("[data-mode=missed] .control")) {
    setShare(row, 0.05);
  }
  for (const row of deciding.element.querySelectorAll("[data-mode=cost] .control")) {
    setCost(row, run.deciding.costs.indexOf(1));
  }
  if (run.deciding.saved) deciding.saved = decodedLabels(run.deciding.saved);
  const start = deciding.saved ? "saved" : "run";
  deciding.element.querySelector(`[name=mode][value=${start}]`).checked = true;
  markMode();
  deciding.element.querySelector("form").addEventListener("input", controlMoved);
  deciding.element
    .querySelector("form")
    .addEventListener("submit", (event) => event.preventDefault());
  deciding.element.querySelector(".copy button").addEventListener("click", copyCommand);
  const changed = deciding.element.querySelector(".changed");
  changed.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-image]");
    if (opener) enlarge(Number(opener.dataset.image), changedImages());
    else if (event.target.matches("button")) showInTable("changed");
  });
  deciding.element.hidden = false;
  const place = deciding.element.querySelector(".curve .plots");
  deciding.curves = boundaries.map((boundary) => drawTradeOff(place, boundary));
  refreshDecision();
}
