// The table of images: filtered, sorted, a page at a time, so that ten thousand images
// are as quick as ten.

const PAGE = 20;
const NEAR = 0.1; // probability within which an image is near a boundary
const COLUMNS = [
  { key: "name", title: "Image", isText: true, value: (i) => images.names[i] },
  { key: "true", title: "True", isText: true, value: (i) => images.truth[i] },
  { key: "label", title: "Label", isText: true, value: (i) => images.labels[i] },
  {
    key: "off",
    title: "Ranks off",
    value: (i) => Math.abs(images.truth[i] - images.labels[i]),
  },
];
if (images.probabilities) {
  COLUMNS.push({
    key: "confidence",
    title: "Confidence",
    value: (i) => probability(i, images.labels[i]),
  });
}
for (const { name, h, above } of boundaries.slice(0, 3)) {
  COLUMNS.push({ key: `above-${h}`, title: `P(above ${name})`, value: (i) => above[i] });
}
if (images.sets) {
  COLUMNS.push({
    key: "set",
    title: `${general(100 * images.sets.coverage)}% set`,
    isText: true,
    value: (i) => images.sets.high[i] - images.sets.low[i],
  });
}

const table = {
  element: document.getElementById("image-table"),
  sorting: { key: "off", isDescending: true },
  page: 0,
  found: [],
};

const MISTAKES = {
  all: () => true,
  wrong: (i) => images.truth[i] !== images.labels[i],
  right: (i) => images.truth[i] === images.labels[i],
  low: (i) => images.labels[i] < images.truth[i],
  high: (i) => images.labels[i] > images.truth[i],
  far: (i) => Math.abs(images.truth[i] - images.labels[i]) > 1,
  changed: (i) => images.labels[i] !== images.predicted[i],
};

const AT_BOUNDARY = {
  crossed: ({ h }) => (i) => images.truth[i] > h !== images.labels[i] > h,
  missed: ({ h }) => (i) => images.truth[i] > h && images.labels[i] <= h,
  alarm: ({ h }) => (i) => images.truth[i] <= h && images.labels[i] > h,
  near: ({ above, threshold }) => (i) =>
    Math.abs(above[i] - (threshold ?? 0.5)) <= NEAR,
};

/** Filters, sorts and shows anew, after a change of labels or of what is asked for. */
function refreshTable() {
  const asked = new FormData(table.element.querySelector("form"));
  const isWanted = MISTAKES[asked.get("mistake")];
  const [kind, h] = asked.get("boundary").split("-");
  const atBoundary = kind
    ? AT_BOUNDARY[kind](boundaries.find((row) => row.h === Number(h)))
    : () => true;
  const rank = asked.get("rank");
  const least = Number(asked.get("least") || 0) / 100;
  const most = Number(asked.get("most") || 100) / 100;
  const part = asked.get("name").toLowerCase();
  table.found = [];
  for (let i = 0; i < images.count; i++) {
    if (!isWanted(i) || !atBoundary(i)) continue;
    if (rank !== "" && images.truth[i] !== Number(rank)) continue;
    const sure = probability(i, images.labels[i]);
    if (sure < least || sure > most) continue; // never without probabilities
    if (part && !images.names[i].toLowerCase().includes(part)) continue;
    table.found.push(i);
  }
  sortFound();
  const last = Math.max(Math.ceil(table.found.length / PAGE) - 1, 0);
  table.page = Math.min(table.page, last);
  showRows();
}

/** By the column asked for; equals by confidence, then by name. */
function sortFound() {
  const { value } = COLUMNS.find(({ key }) => key === table.sorting.key);
  const sign = table.sorting.isDescending ? -1 : 1;
  const keys = new Array(images.count); // found once, not in every comparison
  const sure = new Float64Array(images.count);
  for (const i of table.found) {
    keys[i] = value(i);
    if (images.probabilities) sure[i] = probability(i, images.labels[i]);
  }
  table.found.sort((a, b) => {
    if (keys[a] !== keys[b]) return keys[a] < keys[b] ? -sign : sign;
    if (sure[a] !== sure[b]) return sure[b] - sure[a];
    return images.names[a] < images.names[b] ? -1 : 1;
  });
}

function showRows() {
  const start = table.page * PAGE;
  const shown = table.found.slice(start, start + PAGE);
  table.element.querySelector("tbody").replaceChildren(...shown.map(imageRow));
  const pages = Math.max(Math.ceil(table.found.length / PAGE), 1);
  table.element.querySelector(".count").textContent =
    `${table.found.length} of ${images.count} images` +
    (table.found.length ? "" : "; nothing fits these filters");
  const [before, after] = table.element.querySelectorAll(".pages button");
  before.disabled = table.page === 0;
  after.disabled = table.page >= pages - 1;
  table.element.querySelector(".pages").hidden = pages === 1;
  table.element.querySelector(".pages span").textContent =
    `page ${table.page + 1} of ${pages}`;
  for (const header of table.element.querySelectorAll("th[data-key]")) {
    const isSorted = header.dataset.key === table.sorting.key;
    const way = table.sorting.isDescending ? "descending" : "ascending";
    header.setAttribute("aria-sort", isSorted ? way : "none");
  }
}

function imageRow(i) {
  const cells = COLUMNS.map(({ key, isText, value }) => {
    const cell = element("td", { className: isText ? "text" : "" });
    if (key === "name") {
      cell.classList.add("long");
      const name = element("button", { type: "button", className: "name" });
      name.dataset.image = i;
      name.textContent = images.names[i];
      cell.append(name);
    } else if (key === "true") cell.append(ranks[images.truth[i]]);
    else if (key === "label") {
      cell.append(ranks[images.labels[i]]);
      if (images.labels[i] !== images.predicted[i]) {
        const was = `was ${ranks[images.predicted[i]]}`;
        cell.append(" ", element("span", { className: "rate" }, was));
      }
    } else if (key === "off") cell.append(String(value(i)));
    else if (key === "set") cell.append(setOf(i));
    else cell.append(`${fixed(100 * value(i), 1)}%`);
    return cell;
  });
  const row = element("tr", {}, element("td", { className: "text" }, thumbnail(i)));
  row.append(...cells);
  return row;
}

/** Shows one kind of mistake, from elsewhere on the page. */
function showInTable(mistake) {
  const form = table.element.querySelector("form");
  form.reset();
  form.elements.mistake.value = mistake;
  table.page = 0;
  refreshTable();
  table.element.scrollIntoView();
  form.elements.mistake.focus({ preventScroll: true });
}

function startTable() {
  const headers = COLUMNS.map(({ key, title, isText }) => {
    const button = element("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      const isSame = table.sorting.key === key;
      // Texts are read from a to z, numbers from the largest.
      const isDescending = isSame ? !table.sorting.isDescending : !isText;
      table.sorting = { key, isDescending };
      table.page = 0;
      refreshTable();
    });
    const header = element("th", { scope: "col", className: isText ? "text" : "" });
    header.dataset.key = key;
    header.append(button);
    return header;
  });
  const picture = element("th", { scope: "col", className: "text" }, "Picture");
  table.element.querySelector("thead tr").replaceChildren(picture, ...headers);
  const form = table.element.querySelector("form");
  for (const { name, h } of boundaries) {
    const group = element("optgroup", { label: name });
    const kinds = { crossed: "on the wrong side of", missed: "missed at" };
    Object.assign(kinds, { alarm: "false alarm at", near: "near" });
    for (const [kind, words] of Object.entries(kinds)) {
      group.append(element("option", { value: `${kind}-${h}` }, `${words} ${name}`));
    }
    form.elements.boundary.append(group);
  }
  form.elements.boundary.closest("label").hidden = !boundaries.length;
  form.querySelector(".pair").hidden = !images.probabilities;
  form.addEventListener("input", () => {
    table.page = 0;
    refreshTable();
  });
  form.addEventListener("reset", () => setTimeout(refreshTable)); // after it is done
  form.addEventListener("submit", (event) => event.preventDefault());
  const [before, after] = table.element.querySelectorAll(".pages button");
  for (const [button, step] of [[before, -1], [after, 1]]) {
    button.addEventListener("click", () => {
      table.page += step;
      showRows();
      table.element.querySelector(".scroll").focus();
    });
  }
  table.element.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-image]");
    if (opener) enlarge(Number(opener.dataset.image), table.found);
  });
  table.element.hidden = false;
  refreshTable();
}
