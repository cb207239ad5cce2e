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

/** Images of the split that is shown; null where the run has no list of them. */
const images = run.images && {
  names: run.images.names,
  count: run.images.names.length,
  truth: decoded(run.images.true, Uint16Array),
  predicted: decoded(run.images.predicted, Uint16Array),
  probabilities:
    run.images.probabilities && decoded(run.images.probabilities, Float64Array),
  sets: run.images.sets && {
    low: decoded(run.images.sets.low, Uint16Array),
    high: decoded(run.images.sets.high, Uint16Array),
    coverage: run.images.sets.coverage,
  },
  thumbnails: run.thumbnails,
  labels: null, // by the decision that is chosen
};
if (images) images.labels = images.predicted;

/** Boundaries with a slider, with scores sorted as thresholds need them. */
const boundaries = (run.deciding?.boundaries ?? []).map((row) => ({
  name: row.name,
  h: row.h,
  above: decoded(row.above, Float64Array),
  fit: Object.fromEntries(
    Object.entries(row.fit).map(([split, { scores, is_above }]) => {
      const all = decoded(scores, Float64Array);
      const isAbove = decoded(is_above, Uint8Array);
      const above = all.filter((_, i) => isAbove[i]).sort();
      return [split, { above, all: all.sort() }];
    }),
  ),
}));

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
