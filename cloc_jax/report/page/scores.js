// Scores of labels, and numbers as Python writes them. Only arrays and numbers here.

const DASH = "–";

/** A number with so many digits as Python writes it: halves go to the even digit. */
function fixed(x, digits) {
  if (!Number.isFinite(x)) return DASH;
  if (x < 0) return "-" + fixed(-x, digits);
  const text = x.toFixed(digits); // halves go up
  const scaled = x * 2 ** (digits + 1); // exact; odd for halves alone
  const isHalf = Number.isInteger(scaled) && scaled % 2 === 1;
  if (!isHalf || Number(text.at(-1)) % 2 === 0) return text;
  return (Number(text) - 10 ** -digits).toFixed(digits);
}

/** A share of images, such as "12.5%". */
function percent(count, total) {
  return total ? `${fixed((100 * count) / total, 1)}%` : DASH;
}

/** Counts, true ranks down and labels across, row after row. */
function confusionMatrix(truth, labels, ranks) {
  const counts = new Uint32Array(ranks * ranks);
  for (let i = 0; i < truth.length; i++) counts[truth[i] * ranks + labels[i]] += 1;
  return counts;
}

/** Scores of a confusion matrix, as scoring/metrics.py has them. */
function scoresOf(counts, ranks) {
  const sizes = new Float64Array(ranks);
  const called = new Float64Array(ranks);
  let [total, right, off, observed, chance] = [0, 0, 0, 0, 0];
  for (let t = 0; t < ranks; t++) {
    for (let k = 0; k < ranks; k++) {
      const count = counts[t * ranks + k];
      total += count;
      sizes[t] += count;
      called[k] += count;
      if (t === k) right += count;
      off += count * Math.abs(t - k);
      observed += count * (t - k) ** 2;
    }
  }
  for (let t = 0; t < ranks; t++) {
    for (let k = 0; k < ranks; k++) chance += sizes[t] * called[k] * (t - k) ** 2;
  }
  const qwk = 1 - observed / total / (chance / total ** 2);
  return { total, right, mae: off / total, qwk, sizes, called };
}

/** How labels fare at boundary h: missed of those above, false alarms of those below. */
function tally(counts, ranks, h) {
  let [missed, above, alarms, below] = [0, 0, 0, 0];
  for (let t = 0; t < ranks; t++) {
    for (let k = 0; k < ranks; k++) {
      const count = counts[t * ranks + k];
      if (t > h) {
        above += count;
        if (k <= h) missed += count;
      } else {
        below += count;
        if (k > h) alarms += count;
      }
    }
  }
  return { missed, above, alarms, below };
}

/** A number as briefly as it can be written, up to six digits. */
function general(x) {
  return String(Number(x.toPrecision(6)));
}
