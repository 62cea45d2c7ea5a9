// SQL over streams: an editor, what a query does while it runs, and its result as a table, a chart or a file.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { bar, copyButton, failure, notice, panel, select } from "../parts.js";
import * as shell from "../shell.js";

const KEPT = 30; // queries of this browser
const STORE = "sarit-queries";
const MAX_BARS = 40;

/** Where a stream is queried: the page with the first example in its editor. */
export const queryOf = (scope, stream) => `#/query?sql=${encodeURIComponent(samples(`${ident(scope)}.${ident(stream)}`)[0])}`;

export async function query({ root, params, onEnd }) {
  const about = await api.get("/query");
  const head = h("div", { class: "head" }, h("h1", {}, "Query"));
  if (about.missing) {
    fill(root, head, panel(null, h("p", {}, "Queries need the extra ", h("code", {}, "sql"), " on the node. Install it there, and restart the node:"), h("pre", { tabindex: "0" }, about.missing)));
    return;
  }
  let running = null; // what cancels the query
  let download = null; // pieces of a file
  let columns = [];
  let rows = [];
  let seen = 0; // the rows that are in the table
  const editor = h("textarea", { id: "query-sql", rows: "7", spellcheck: "false", autocapitalize: "off", autocomplete: "off", maxlength: "65536", "aria-describedby": "query-help", onkeydown: (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  } });
  editor.value = params.sql ?? latest();
  const go = h("button", { type: "submit", class: "primary" }, "Run");
  const cancel = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Cancel");
  const values = select([["auto", "Values by schema, else bytes"], ["json", "Values are JSON"], ["binary", "Values are bytes"]], params.values ?? "auto");
  values.setAttribute("aria-label", "How values become columns");
  const file = h("button", { type: "button", onclick: () => run("csv") }, "Download CSV");
  const copied = copyButton("Copy as command", () => [["The same on the command line, where files and Iceberg tables can be joined, too", shell.command("sarit", "query", values.value === "auto" ? null : shell.option("values", values.value), editor.value.trim())]]);
  const said = h("p", { class: "num result", role: "status" });
  const problem = h("div", {});
  const body = h("tbody", {});
  const result = h("div", {});
  const drawn = h("div", {});
  const examples = h("div", {});
  const past = h("div", {});
  const form = h("form", { class: "search-form", onsubmit: (event) => { event.preventDefault(); run(); } },
    h("label", { for: "query-sql", class: "unseen" }, "SQL"), editor,
    h("div", { class: "actions left" }, go, cancel, values, file, copied));
  const help = h("p", { class: "muted help-line", id: "query-help" }, "Streams and key-value tables are tables: scope.name. One SELECT. Ctrl and Enter run it.");
  fill(root, head, panel(null, form, help, said, problem), h("div", {}, result, drawn, h("div", { class: "grid" }, examples, past)));

  async function run(kind = "page", most = about.bytes) {
    const sql = editor.value.trim();
    if (running || !sql) { if (!sql) editor.focus(); return; }
    remember(sql);
    fill(problem);
    if (kind === "page") { fill(result); fill(drawn); columns = []; rows = []; seen = 0; } else download = [];
    running = new AbortController();
    draw(kind === "page" ? "Running…" : "The file is made…");
    let ended = null;
    try {
      await api.lines("/query", { sql, form: kind, bytes: most, values: values.value }, (name, found) => {
        if (name === "columns" && kind === "page") { columns = found.columns; table(); }
        if (name === "rows") { rows.push(...found); fillTable(); }
        if (name === "csv") download.push(found);
        if (name === "step" && found.seconds) draw(`${kind === "page" ? "Running" : "The file is made"}: ${times(found)}`, true);
        if (name === "done" || name === "failed") ended = [name, found];
      }, running.signal);
      if (!ended) throw new Error("the connection is lost: run the query again");
      if (ended[0] === "done") finish(kind, ended[1]); else fail(kind, sql, ended[1]);
    } catch (error) {
      draw(error.name === "AbortError" ? "Cancelled." : "");
      if (error.name !== "AbortError") fill(problem, failure(error));
    } finally {
      running = null;
      download = null;
      buttons();
    }
  }
  function draw(text, quiet = false) {
    buttons();
    // Screen readers hear of the beginning and the end, not of each step.
    said.setAttribute("aria-live", quiet ? "off" : "polite");
    if (said.textContent !== text) said.textContent = text;
  }
  function buttons() {
    go.disabled = file.disabled = Boolean(running);
    cancel.hidden = !running;
  }
  function finish(kind, found) {
    const whole = found.complete ? "" : kind === "page" ? "The first " : "As much as one file holds: the first ";
    draw(`${whole}${f.count(found.rows)} ${found.rows === 1 ? "row" : "rows"}, ${times(found)}`);
    if (kind === "csv") { save(download); return; }
    if (!found.rows) fill(result, panel(null, h("p", { class: "empty" }, "The result has no rows.")));
    chart();
  }
  function fail(kind, sql, found) {
    draw("");
    if (found.planned_bytes) {
      const may = found.planned_bytes <= about.most_bytes;
      const more = h("button", { type: "button", onclick: () => run(kind, about.most_bytes) }, `Read up to ${f.bytes(may ? found.planned_bytes : about.most_bytes)}`);
      fill(problem, notice("warn",
        h("p", {}, `This query reads ${f.bytes(found.planned_bytes)} of streams. `, may ? "Bound it by " : `That is more than a query may here (${f.bytes(about.most_bytes)}). Bound it by `,
          h("code", {}, "sarit.ingested"), " or ", h("code", {}, "sarit.segment"), ", or run it by ", h("code", {}, "sarit query"), " on a machine of your own."),
        may && h("div", { class: "actions left" }, more)));
      (may ? more : problem).focus?.();
      return;
    }
    const [line, column] = found.place ?? [];
    fill(problem, h("div", { class: "notice bad", role: "alert" }, line && h("strong", {}, `Line ${line}, column ${column}`), h("pre", { class: "why-not" }, found.error)));
    if (!line || editor.value.trim() !== sql) return;
    const at = editor.value.indexOf(sql) + sql.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
    editor.focus();
    editor.setSelectionRange(at, Math.min(at + 1, editor.value.length));
  }
  function table() {
    fill(body);
    fill(result, panel(null, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Result" },
      h("table", { class: "query-result" },
        h("caption", { class: "unseen" }, "Result of the query"),
        h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.number ? "num" : "" }, each.name, h("span", { class: "type", title: each.type }, short(each.type)))))),
        body))));
  }
  function fillTable() {
    body.append(...rows.slice(seen).map((row) => h("tr", {}, row.map((value, place) =>
      h("td", { class: columns[place].number ? "num" : "", "data-label": columns[place].name }, h("div", {}, columns[place].name === "explain_value" ? h("pre", {}, value) : cell(value)))))));
    seen = rows.length;
  }
  /** Few rows with a number: the first one as bars, named by the first other column. */
  function chart() {
    const number = columns.findIndex((each) => each.number && each !== columns[0]);
    if (number < 0 || rows.length < 2 || rows.length > MAX_BARS) return;
    const values = rows.map((row) => Number(row[number]));
    if (!values.every((value) => Number.isFinite(value) && value >= 0)) return;
    const most = Math.max(...values);
    if (!most) return;
    fill(drawn, panel(`${columns[number].name} by ${columns[0].name}`,
      rows.map((row, place) => bar(row[0] === null ? "null" : String(row[0]).slice(0, 80), values[place], most, String(row[number]), [], true))));
  }
  function history() {
    const kept = stored();
    fill(past, panel("Queries of this browser", kept.length
      ? [h("ul", { class: "queries" }, kept.map((sql) => h("li", {}, take(sql)))), h("div", { class: "actions left" }, h("button", { type: "button", class: "small", onclick: () => { keep([]); history(); } }, "Forget them"))]
      : h("p", { class: "empty" }, "There are none yet.")));
  }
  function take(sql) {
    return h("button", { type: "button", class: "query-text", title: "Put it into the editor", onclick: () => { editor.value = sql; editor.focus(); scrollTo(0, 0); } }, sql);
  }
  function remember(sql) {
    keep([sql, ...stored().filter((each) => each !== sql)].slice(0, KEPT));
    history();
  }
  async function showExamples() {
    let names = [];
    try { names = (await api.get("/streams", { limit: 1 })).rows.map((row) => `${ident(row.scope)}.${ident(row.stream)}`); } catch { /* the examples name no stream of theirs */ }
    const name = names[0];
    fill(examples, panel("Examples", name ? h("ul", { class: "queries" }, samples(name).map((sql) => h("li", {}, take(sql)))) : h("p", { class: "empty" }, "You see no stream yet.")));
    if (!editor.value && name) [editor.value] = samples(name);
  }

  onEnd(() => running?.abort());
  buttons();
  history();
  await showExamples();
  if (!matchMedia("(pointer: coarse)").matches) editor.focus({ preventScroll: true });
}

const samples = (name) => [
  `SELECT sarit.ingested, sarit.key, value\nFROM ${name}\nLIMIT 100`,
  `SELECT sarit.segment, count(*) AS events\nFROM ${name}\nGROUP BY ALL ORDER BY ALL`,
  `SELECT count(*) AS events\nFROM ${name}\nWHERE sarit.ingested > now() - INTERVAL 1 HOUR`,
  `SELECT date_trunc('minute', sarit.ingested) AS minute, count(*) AS events\nFROM ${name}\nGROUP BY ALL ORDER BY ALL`,
  `SELECT decode(value) AS text, sarit.offset\nFROM ${name}\nWHERE contains(decode(value), 'a')\nLIMIT 100`,
  `DESCRIBE ${name}`,
];

/** A name as SQL has it. */
const ident = (name) => (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

const times = ({ seconds, read_bytes: bytes }) => `${seconds.toFixed(1)} s, ${f.bytes(bytes)} read`;

/** A type without what is in it, where that is long: the title has it whole. */
const short = (type) => (type.length > 24 ? `${type.slice(0, 24).split(/[<([]/)[0]}…` : type);

const cell = (value) => (value === null ? h("span", { class: "null" }, "null") : String(value));

function save(pieces) {
  const url = URL.createObjectURL(new Blob(pieces, { type: "text/csv;charset=utf-8" }));
  const link = h("a", { href: url, download: "query.csv", hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORE) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string").slice(0, KEPT) : [];
  } catch { return []; }
}
const latest = () => stored()[0] ?? "";
function keep(list) {
  try { localStorage.setItem(STORE, JSON.stringify(list)); } catch { /* storage is off, or full */ }
}
