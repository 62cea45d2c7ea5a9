// Numbers, times and payloads for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let unit = 0;
  let left = Math.abs(n);
  while (left >= 1024 && unit < UNITS.length - 1) { left /= 1024; unit += 1; }
  const digits = unit === 0 || left >= 100 ? 0 : left >= 10 ? 1 : 2;
  return `${n < 0 ? "−" : ""}${left.toFixed(digits)} ${UNITS[unit]}`;
}

export const rate = (n) => (n === null || n === undefined ? "–" : `${bytes(n)}/s`);

export function count(n) {
  if (n === null || n === undefined) return "–";
  return Number(n).toLocaleString("en", { maximumFractionDigits: n < 10 && n % 1 ? 1 : 0 });
}

export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  const two = (large, big, little, small) => `${large} ${big}${little ? ` ${little} ${small}` : ""}`;
  if (s < 172800) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return two(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const moment = (ms) => {
  const d = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}`;
};

export const key = (x) => (x === 0 || x === 1 ? String(x) : x.toFixed(4).replace(/0+$/, ""));
export const keys = (low, high) => `${key(low)} – ${key(high)}`;

export function scaling(policy) {
  if (policy.type === "fixed") return `fixed, ${count(policy.segments)}`;
  const unit = policy.type === "bytes" ? "KiB/s" : "events/s";
  return `${count(policy.target)} ${unit} × ${policy.factor}, min ${policy.segments}`;
}

export function retention(policy) {
  if (policy.type === "none") return "keep all";
  const show = policy.type === "time" ? duration : bytes;
  return policy.maximum ? `${show(policy.limit)} to ${show(policy.maximum)}` : show(policy.limit);
}

// What a page would obey and not show: controls, and the marks that turn the direction of the text behind them.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Text as it is, with what cannot be seen as \uXXXX: a name must not be shown as another one. */
export const visible = (text) => text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

// -- payloads ----------------------------------------------------------------------------------

const strict = new TextDecoder("utf-8", { fatal: true });

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

export function toBase64(data) {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Text that has no control characters but line ends and tabs; null when it is none. */
function asText(data, cut) {
  // A payload that was cut may end within a character.
  for (let less = 0; less <= (cut ? 3 : 0); less += 1) {
    try {
      const text = strict.decode(less ? data.subarray(0, data.length - less) : data);
      return /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(text) ? null : text;
    } catch { /* not UTF-8, or one byte less */ }
  }
  return null;
}

export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const digits = part.map((b) => b.toString(16).padStart(2, "0"));
    const left = digits.slice(0, 8).join(" ").padEnd(23);
    const right = digits.slice(8).join(" ").padEnd(23);
    const text = part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left}  ${right}  ${text}`);
  }
  return lines.join("\n");
}

/** The text of a payload that came whole; null when it is no UTF-8. */
export function utf8(payload) {
  try { return strict.decode(fromBase64(payload.base64)); } catch { return null; }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,"]+/g;

/** A JSON document on several lines, its numbers and texts as they are written: `JSON.parse` would round and drop. */
export function pretty(text) {
  let out = "";
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, 50))}`;
  for (const token of text.match(TOKENS) ?? []) {
    const closes = token === "]" || token === "}";
    if (closes) depth -= 1;
    const opened = before === "[" || before === "{";
    if (closes) out += opened ? token : line() + token;
    else if (token === ",") out += token;
    else if (token === ":") out += ": ";
    else out += (opened || before === "," ? line() : "") + token;
    if (token === "[" || token === "{") depth += 1;
    before = token;
  }
  return out;
}

/** A JSON document on one line, its numbers and texts as they are written. */
export const compact = (text) => (text.match(TOKENS) ?? []).join("");

/** How a payload shows: { kind: "json" | "text" | "hex", text, line }. `wanted`: "auto" or one of the kinds. */
export function decode(payload, wanted = "auto") {
  const data = fromBase64(payload.base64);
  if (wanted !== "hex") {
    const text = asText(data, payload.cut);
    if (text !== null) {
      if (wanted !== "text" && /^\s*[[{"]/.test(text)) {
        try {
          JSON.parse(text);
          return { kind: "json", text: pretty(text), line: text };
        } catch { /* looks like JSON, and is none, or was cut */ }
      }
      return { kind: "text", text, line: text };
    }
  }
  const line = [...data.subarray(0, 48)].map((b) => b.toString(16).padStart(2, "0")).join(" ");
  return { kind: "hex", text: hex(data), line };
}
