// One image, as large as it was kept, with what the network said of it.

const dialog = document.getElementById("enlarged");
let around = []; // images that the arrow keys walk through
let place = 0;

function enlarge(image, among) {
  around = among;
  place = Math.max(among.indexOf(image), 0);
  showEnlarged();
  if (!dialog.open) dialog.showModal();
}

function showEnlarged() {
  const i = around[place];
  const data = images.thumbnails[i];
  const picture = data
    ? element("img", { src: PICTURE + data, alt: `Image ${images.names[i]}` })
    : element("p", { className: "missing" }, "No picture of this image was kept.");
  const facts = [
    `True rank ${ranks[images.truth[i]]}, labelled ${ranks[images.labels[i]]}`,
  ];
  if (images.labels[i] !== images.predicted[i]) {
    facts[0] += ` by the decision, ${ranks[images.predicted[i]]} by the run`;
  }
  if (images.sets) {
    facts.push(`Set of ${general(100 * images.sets.coverage)}% coverage: ${setOf(i)}`);
  }
  const close = element("button", { type: "button", className: "close" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const steps = [-1, 1].map((step) => {
    const text = step < 0 ? "← Previous" : "Next →";
    const button = element("button", { type: "button" }, text);
    button.disabled = !(place + step in around);
    button.addEventListener("click", () => walk(step));
    return button;
  });
  dialog.replaceChildren(
    element("p", { id: "enlarged-name" }, images.names[i]),
    picture,
    ...facts.map((fact) => element("p", {}, `${fact}.`)),
    ...(images.probabilities && ranks.length <= 20 ? [probabilityTable(i)] : []),
    element("p", { className: "buttons" }, ...steps, close),
  );
}

function probabilityTable(i) {
  const rows = ranks.map((rank, k) => {
    const p = probability(i, k);
    const bar = element("span", {});
    bar.style.width = `${100 * p}%`;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, rank),
      element("td", {}, `${fixed(100 * p, 1)}%`),
      element("td", { className: "bar" }, bar),
    );
  });
  return element("table", {}, element("tbody", {}, ...rows));
}

function walk(step) {
  if (!(place + step in around)) return;
  place += step;
  showEnlarged();
  dialog.querySelector(".close").focus();
}

dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft") walk(-1);
  if (event.key === "ArrowRight") walk(1);
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});
