// The rule of scoring/decisions.py, to the last bit: the same comparisons and sums in
// the same order, on the same float64 probabilities. Only arrays and numbers here.

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

/** How many of so many images may be missed; -1 if a guarantee is out of reach. */
function allowedMissed(count, share, isGuaranteed) {
  const extra = isGuaranteed ? 1 : 0;
  let allowed = Math.trunc(share * (count + extra)) + 1 - extra;
  while ((allowed + extra) / (count + extra) > share) allowed -= 1;
  return allowed;
}

/** The least number of images above a boundary that a guarantee takes. */
function imagesNeeded(share) {
  let count = Math.max(Math.ceil(1 / share) - 2, 0);
  while (1 / (count + 1) > share) count += 1;
  return count;
}

/** The largest threshold at a boundary that misses few enough images.
 *
 * `above` are the sorted scores of the images truly above, `all` those of all images.
 * Throws an Error whose message is for people where there is none.
 */
function fitThreshold({ above, all }, name, share, isGuaranteed) {
  if (!(share >= 0 && share < 1) || (isGuaranteed && share === 0)) {
    throw new Error(
      `The share that may be missed at ${name} must be ` +
        `${isGuaranteed ? "above" : "from"} 0 and below 100%.`,
    );
  }
  if (!above.length) {
    throw new Error(`No image is truly above ${name} to choose a threshold by.`);
  }
  const allowed = allowedMissed(above.length, share, isGuaranteed);
  if (allowed < 0) {
    throw new Error(
      `To guarantee at most ${general(100 * share)}% missed at ${name} takes at least ` +
        `${imagesNeeded(share)} calibration images above it, but there are ` +
        `${above.length}.`,
    );
  }
  return justBelow(above[allowed], all);
}

/** A threshold just under a score: halfway to the next lower one, if any. */
function justBelow(score, sorted) {
  let low = 0;
  let high = sorted.length; // the first that is not below lies in low .. high
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < score) low = middle + 1;
    else high = middle;
  }
  if (low === 0 && score <= 0) return -1;
  const under = low > 0 ? sorted[low - 1] : 0;
  const between = (under + score) / 2;
  return between < score ? between : under;
}

/** The most probable rank on the sides that thresholds allow.
 *
 * `moved` has, low to high, the `h` of each boundary, its `threshold` and `above`, the
 * probability of that for every image. The higher side wins where two disagree.
 */
function byThresholds(probabilities, ranks, moved) {
  const labels = new Uint16Array(probabilities.length / ranks);
  for (let i = 0; i < labels.length; i++) {
    let least = 0;
    let most = ranks - 1;
    for (const { h, threshold, above } of moved) {
      if (above[i] > threshold) least = h + 1;
    }
    for (const { h, threshold, above } of moved) {
      if (!(above[i] > threshold) && h >= least && h < most) most = h;
    }
    let best = least;
    for (let k = least + 1; k <= most; k++) {
      if (probabilities[i * ranks + k] > probabilities[i * ranks + best]) best = k;
    }
    labels[i] = best;
  }
  return labels;
}

/** Cost of each label (column) for each true rank (row), row after row. */
function costMatrix(missed, alarm) {
  const ranks = missed.length + 1;
  const down = [0];
  const up = [0];
  for (let h = 0; h < ranks - 1; h++) {
    down.push(down[h] + missed[h]);
    up.push(up[h] + alarm[h]);
  }
  const costs = new Float64Array(ranks * ranks);
  for (let t = 0; t < ranks; t++) {
    for (let k = 0; k < ranks; k++) {
      costs[t * ranks + k] = Math.max(down[t] - down[k], 0) + Math.max(up[k] - up[t], 0);
    }
  }
  return costs;
}

/** The label with the least expected cost; the lowest of several such. */
function leastCost(probabilities, ranks, costs) {
  const labels = new Uint16Array(probabilities.length / ranks);
  const expected = new Float64Array(ranks);
  for (let i = 0; i < labels.length; i++) {
    expected.fill(0);
    for (let t = 0; t < ranks; t++) {
      const p = probabilities[i * ranks + t];
      for (let k = 0; k < ranks; k++) expected[k] += p * costs[t * ranks + k];
    }
    let best = 0;
    for (let k = 1; k < ranks; k++) if (expected[k] < expected[best]) best = k;
    labels[i] = best;
  }
  return labels;
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
