// What the page knows of the run, read once, and small helpers for its elements.

const PICTURE = "data:image/jpeg;base64,";
const run = JSON.parse(document.getElementById("data").textContent);
const ranks = run.ranks;

function decoded(text, Kind) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Kind(bytes.buffer); // little-endian, as all browsers are
}

/** Labels, one for each image. */
const decodedLabels = (text) => decoded(text, Uint16Array);

/** The test images. */
const images = {
  names: run.images.names,
  count: run.images.names.length,
  truth: decodedLabels(run.images.true),
  predicted: decodedLabels(run.images.predicted),
  probabilities:
    run.images.probabilities && decoded(run.images.probabilities, Float32Array),
  sets: run.images.sets && {
    low: decodedLabels(run.images.sets.low),
    high: decodedLabels(run.images.sets.high),
    coverage: run.images.sets.coverage,
  },
  thumbnails: run.images.thumbnails,
  labels: null, // by the decision that is chosen
};
images.labels = images.predicted;

/** Boundaries with a slider, and what its positions lead to; see html_page.py. */
const boundaries = (run.deciding?.boundaries ?? []).map((row) => ({
  ...row,
  above: decoded(row.above, Float32Array),
  by_cost: row.by_cost.map(decodedLabels),
  steps: Object.fromEntries(
    Object.entries(row.steps).map(([split, { shares, thresholds, passed }]) => [
      split,
      {
        shares: decoded(shares, Float64Array),
        thresholds: decoded(thresholds, Float64Array),
        passed: decoded(passed, Uint32Array),
      },
    ]),
  ),
}));
const sides = run.deciding?.sides.map(decodedLabels);

/** The probability of an image's rank; NaN without probabilities. */
function probability(i, rank) {
  return images.probabilities ? images.probabilities[i * ranks.length + rank] : NaN;
}

/** A set in words: "1", or "1 to 3". */
function setOf(i) {
  const [low, high] = [images.sets.low[i], images.sets.high[i]];
  return low === high ? ranks[low] : `${ranks[low]} to ${ranks[high]}`;
}

/** A new element; `fields` are its properties, or attributes where they have a dash. */
function element(tag, fields = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name.includes("-") || name === "role" || name === "scope") {
      made.setAttribute(name, value);
    } else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** An image's thumbnail as a button that enlarges it; a blank one without a picture. */
function thumbnail(i) {
  const data = images.thumbnails[i];
  const inside = data
    ? element("img", { src: PICTURE + data, alt: "", className: "thumbnail" })
    : element("span", { className: "thumbnail none" }, "no picture");
  const label = `Enlarge ${images.names[i]}`;
  const button = element("button", { type: "button", className: "enlarge" }, inside);
  button.setAttribute("aria-label", label);
  button.dataset.image = i;
  return button;
}
