// Commands for a shell, quoted for every POSIX shell.  Pure.

/** One word; of an option its value alone.  Within single quotes a shell changes nothing but the quote itself. */
export function quote(word) {
  const [, name = "", value] = /^(--[a-z-]+=)?([^]*)$/.exec(word);
  return name + (/^[A-Za-z0-9_@%+:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`);
}

/** A command of words; null and "" of options that are not given are left out by whoever calls. */
export const command = (...words) => words.filter((word) => word !== null && word !== undefined).map(quote).join(" ");

/** An option with its value in one word, so that a value with a dash in front is no option. */
export const option = (name, value) => `--${name}=${value}`;

/** JSON in ASCII on one line: what a terminal would act on, or a person would not see, is escaped. */
export const asciiJson = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Text that can stand on a command line as it is: one line, and nothing that a terminal acts on. */
export const plain = (text) => !/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/.test(text.replace(/[\ud800-\udbff][\udc00-\udfff]/g, ""));

/** Reads a stream; `more`: further options. */
export const readCommand = (stream, ...more) => command("sarit", "read", stream, ...more);

/** Writes one event. `event`: { text or base64, key, headers: [{ name, value or base64 }], event_time, envelope }. */
export function writeCommand(stream, event) {
  const { text, base64, key, headers = [], event_time: time, envelope } = event;
  const framed = envelope || headers.length > 0 || Boolean(time);
  const simple = text !== undefined && plain(text) && plain(key ?? "") && (!time || plain(time))
    && headers.every(({ name, value }) => value !== undefined && plain(name) && plain(value) && !name.includes("="));
  if (simple) {
    return `printf '%s\\n' ${quote(text)} | ${command("sarit", "write", stream, "--input=lines", key ? option("key", key) : null, framed ? "--envelope" : null,
      time ? option("event-time", time) : null, ...headers.map(({ name, value }) => option("header", `${name}=${value}`)))}`;
  }
  const document = text === undefined ? { event_base64: base64 } : { event: text };
  if (key) document.key = key;
  if (framed) document.envelope = true;
  if (time) document.event_time = time;
  if (headers.length) document.headers = headers.map(({ name, value, base64: raw }) => (value === undefined ? { name, value_base64: raw } : { name, value }));
  return `printf '%s\\n' ${quote(asciiJson(document))} | ${command("sarit", "write", stream, "--input=json")}`;
}

/** A GET of the REST API; `user`: who logs in, and is asked for the password. */
export const curl = (origin, path, user = "") => command("curl", "-sS", ...(user ? ["-u", user] : []), origin + path);
