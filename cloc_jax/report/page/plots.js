// Plots with values below them, for mouse and arrow keys.

// Okabe and Ito's colours, which colour-blind readers can tell apart.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const INK = "#22303c";
const FAINT = "#dfe5ea";
const MOST_NAMED = 12; // lines with a colour and a name of their own
const DASHES = [[], [8, 4], [2, 3]]; // a second difference, beside colour

const share = (x) => `${fixed(100 * x, 1)}%`;
const shortShare = (x) => `${general(100 * x)}%`;
const SHARES = { formatX: share, formatY: share, tickX: shortShare, tickY: shortShare };

/** A colour for each line: those above, or along a scale where there are many. */
function colourOf(n, count) {
  if (count <= MOST_NAMED) return COLOURS[n % COLOURS.length];
  return `hsl(${Math.round(280 - (230 * n) / (count - 1))} 60% 45%)`;
}

function axis(label, format, size) {
  return {
    label,
    stroke: INK,
    labelFont: "13px system-ui",
    font: "12px system-ui",
    grid: { stroke: FAINT, width: 1 },
    ticks: { stroke: FAINT },
    size,
    labelSize: 22,
    values: (_, values) => values.map(format),
  };
}

/** Draws into a place; `lines` have `name`, `values`, and may have `dash`, `isPoints`.
 *
 * Arrow keys move along x. `draw` may add to the canvas.
 */
function drawPlot(place, asked) {
  const { title, x, xLabel, yLabel, lines, formatX, formatY, draw } = asked;
  const { tickX, tickY } = asked; // how axes write numbers, where that is shorter
  const isMany = lines.length > MOST_NAMED;
  const options = {
    title,
    legend: { show: !isMany },
    width: 300,
    height: 300,
    scales: {
      x: { time: false, ...(asked.isSquare && { range: [0, 1] }) },
      ...(asked.isSquare && { y: { range: [0, 1.02] } }),
    },
    padding: [8, 24, 0, 0], // room for half of the last number
    axes: [
      { ...axis(xLabel, tickX ?? formatX, 30), ...(asked.incrs && { incrs: asked.incrs }) },
      axis(yLabel, tickY ?? formatY, 50),
    ],
    series: [
      { label: xLabel, value: (_, v) => (v == null ? DASH : formatX(v)) },
      ...lines.map((line, n) => ({
        label: line.name,
        stroke: line.colour ?? colourOf(n, lines.length),
        width: line.isPoints || line.isUnseen ? 0 : isMany ? 1 : 2,
        dash:
          line.dash ??
          (isMany ? [] : DASHES[Math.trunc(n / COLOURS.length) % DASHES.length]),
        points: {
          show: !line.isUnseen && !isMany && (line.isPoints || x.length <= 40),
          size: line.isPoints ? 9 : 5,
          fill: line.colour ?? colourOf(n, lines.length),
        },
        value: (_, v) => (v == null ? DASH : formatY(v)),
        spanGaps: true,
      })),
    ],
    cursor: { y: false, drag: { x: false, y: false } },
    hooks: draw ? { draw: [draw] } : {},
  };
  const holder = element("div", { className: "plot", tabIndex: 0, role: "group" });
  holder.setAttribute("aria-label", `${title}. Arrow keys read the values.`);
  const spoken = element("p", { className: "unseen", role: "status" });
  place.append(holder);
  const plot = new uPlot(options, [x, ...lines.map((line) => line.values)], holder);
  holder.append(spoken);
  new ResizeObserver(() => {
    const width = holder.clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: 300 });
  }).observe(holder);
  let at = -1;
  holder.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.min(Math.max((plot.cursor.idx ?? at) + step, 0), x.length - 1);
    const known = plot.data.slice(1).find((values) => values[at] != null);
    const top = known ? plot.valToPos(known[at], "y") : 0;
    plot.setCursor({ left: plot.valToPos(x[at], "x"), top });
    spoken.textContent = [
      `${xLabel} ${formatX(x[at])}`,
      ...lines.map(({ name, values }) => `${name} ${formatY(values[at] ?? NaN)}`),
    ].join(", ");
  });
  return plot;
}

/** Lines at the epochs after which a stage began. */
function stageChanges(changes) {
  return (u) => {
    for (const change of changes) {
      const left = Math.round(u.valToPos(change + 0.5, "x", true));
      strokePath(u, [[left, u.bbox.top], [left, u.bbox.top + u.bbox.height]], [4, 4]);
    }
  };
}

function strokePath(u, points, dash, colour = "#8a97a3") {
  u.ctx.save();
  u.ctx.strokeStyle = colour;
  u.ctx.lineWidth = 1.5 * devicePixelRatio;
  u.ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  u.ctx.beginPath();
  points.forEach(([left, top], n) => u.ctx[n ? "lineTo" : "moveTo"](left, top));
  u.ctx.stroke();
  u.ctx.restore();
}

function drawEpochs(place, plot) {
  const isShare = plot.title === "Accuracy";
  drawPlot(place, {
    title: plot.title,
    x: plot.x,
    xLabel: "Epoch",
    yLabel: plot.title,
    lines: plot.lines.map((line) => (line.is_fixed ? { ...line, dash: [8, 4] } : line)),
    formatX: String,
    incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], // epochs are whole
    formatY: isShare ? share : (y) => fixed(y, 3),
    tickY: isShare ? shortShare : general,
    draw: stageChanges(plot.changes),
  });
}

function drawCalibration(place, panels) {
  const bars = { isUnseen: true, colour: COLOURS[0] }; // drawn below
  for (const { title, bins } of panels) {
    drawPlot(place, {
      title,
      x: bins.map((bin) => bin[0]),
      xLabel: "Probability",
      yLabel: "Observed share",
      lines: [
        { name: "observed", values: bins.map((bin) => bin[1]), isPoints: true },
        { name: "from", values: bins.map((bin) => bin[2][0]), ...bars },
        { name: "to", values: bins.map((bin) => bin[2][1]), ...bars },
      ],
      ...SHARES,
      isSquare: true,
      draw: (u) => {
        const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
        strokePath(u, [at(0, 0), at(1, 1)], [6, 4]);
        for (const [x, , [from, to]] of bins) {
          strokePath(u, [at(x, from), at(x, to)], [], COLOURS[0]);
        }
      },
    });
  }
}

/** Draws the trade-off of a boundary; the plot returned marks `now` and `before`. */
function drawTradeOff(place, boundary) {
  const { missed, alarms, above, below } = boundary.curve;
  if (!above || !below) return null;
  const marks = { before: null, now: null };
  const plot = drawPlot(place, {
    title: `At ${boundary.name}`,
    x: missed.map((count) => count / above),
    xLabel: "Missed",
    yLabel: "False alarms",
    lines: [{ name: "False alarms", values: alarms.map((count) => count / below) }],
    ...SHARES,
    draw: (u) => {
      const isClose = marks.now && Math.abs(marks.now[0] - marks.before[0]) < 0.15;
      drawMark(u, marks.before, "#5b6975", "the run", isClose ? 18 : -8);
      if (marks.now) drawMark(u, marks.now, "#d55e00", "now", -8);
    },
  });
  return {
    move(before, now) {
      const rates = (t) => t && [t.missed / above, t.alarms / below];
      Object.assign(marks, { before: rates(before), now: rates(now) });
      plot.redraw(false);
    },
  };
}

function drawMark(u, at, colour, text, down) {
  if (!at) return;
  const [left, top] = [u.valToPos(at[0], "x", true), u.valToPos(at[1], "y", true)];
  const { ctx } = u;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.arc(left, top, 6 * devicePixelRatio, 0, 2 * Math.PI);
  if (text === "now") ctx.fill();
  else ctx.stroke();
  ctx.font = `600 ${13 * devicePixelRatio}px system-ui`;
  const isRight = left > u.bbox.left + 0.75 * u.bbox.width;
  ctx.textAlign = isRight ? "right" : "left";
  const aside = (isRight ? -10 : 10) * devicePixelRatio;
  ctx.fillText(text, left + aside, top + down * devicePixelRatio);
  ctx.restore();
}

/** Puts plots where the page has places for them. */
function startPlots() {
  for (const place of document.querySelectorAll("[data-plots]")) {
    const names = place.dataset.plots.split(" ").filter((name) => run.plots[name]);
    if (!names.length) continue;
    place.hidden = false;
    for (const name of names) {
      if (name === "calibration") drawCalibration(place, run.plots[name]);
      else drawEpochs(place, run.plots[name]);
    }
  }
}
