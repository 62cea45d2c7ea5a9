// What differs between two texts, line by line.  Pure.

const MAX_CELLS = 4000000; // of the table of common lines

/** The lines of both, each with " ", "-" (before alone) or "+" (after alone); null: they are too many. */
export function diff(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const a = before.slice(head, before.length - tail);
  const b = after.slice(head, after.length - tail);
  if ((a.length + 1) * (b.length + 1) > MAX_CELLS) return null;
  // How many lines the rests of both have in common, from the ends on.
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = before.slice(0, head).map((line) => [" ", line]);
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { found.push([" ", a[i]]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) { found.push(["-", a[i]]); i += 1; }
    else { found.push(["+", b[j]]); j += 1; }
  }
  return [...found, ...before.slice(before.length - tail).map((line) => [" ", line])];
}
