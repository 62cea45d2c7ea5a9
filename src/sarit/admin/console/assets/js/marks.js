// The words of a text that a search looks for, found as the node finds them (search/highlights.py).  Pure.

// Ideographs, kana and Hangul are words each.
const SINGLE = "\\u3005\\u3041-\\u3096\\u30a1-\\u30fa\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const WORD = new RegExp(`[${SINGLE}]|(?:(?![${SINGLE}])[\\p{L}\\p{N}])+`, "gu");
const MAX_MARKS = 200; // of one text
const MAX_WORD = 128;

/** Where a text matches, as [begin, end] in its code units; `marks`: { words, phrases, beginnings }. */
export function spans(text, marks) {
  const wanted = new Set(marks.words);
  const found = [...text.matchAll(WORD)].map((match) => ({
    token: [...match[0].toLowerCase().replaceAll("ς", "σ")].slice(0, MAX_WORD).join(""), begin: match.index, end: match.index + match[0].length,
  }));
  const count = (at) => {
    const lengths = marks.phrases.filter((phrase) => phrase.every((token, step) => found[at + step]?.token === token)).map((phrase) => phrase.length);
    if (lengths.length) return Math.max(...lengths);
    return wanted.has(found[at].token) || marks.beginnings.some((one) => found[at].token.startsWith(one)) ? 1 : 0;
  };
  const made = [];
  let covered = 0;
  for (let at = 0; at < found.length; at += 1) {
    const length = count(at);
    if (!length) continue;
    const { end } = found[at + length - 1];
    if (at < covered) made.at(-1)[1] = Math.max(made.at(-1)[1], end);
    else if (made.length === MAX_MARKS) break;
    else made.push([found[at].begin, end]);
    covered = Math.max(covered, at + length);
  }
  return made;
}

/** The part of a long line around its first mark. */
export function excerpt(line, marks, most) {
  const first = line.length > most && marks ? spans(line, marks)[0]?.[0] ?? 0 : 0;
  const begin = first > most / 2 ? first - Math.floor(most / 4) : 0;
  return `${begin ? "…" : ""}${line.slice(begin, begin + most)}`;
}
