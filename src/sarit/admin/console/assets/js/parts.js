// Pieces that all views are made of.

import { fill, h } from "./dom.js";
import * as f from "./format.js";
import { spans } from "./marks.js";

export const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

const STATES = {
  serving: "good", ok: "good", assigned: "good", open: "info", committed: "good", opening: "warn", draining: "warn",
  degraded: "warn", committing: "warn", aborting: "warn", unassigned: "warn", failed: "bad", absent: "", aborted: "",
  active: "good", paused: "warn", promoted: "info",
  running: "good", complete: "good", failing: "bad", waiting: "",
  later: "", sealed: "", moving: "warn", leaving: "warn", away: "bad",
  recovering: "warn", unknown: "warn", damaged: "bad", "log-away": "bad", "disk-full": "bad", "storage-away": "bad",
  "not-open": "bad", "no-lease": "bad", "zookeeper-away": "bad", "stands-still": "bad", starting: "warn",
};
export const state = (text) => badge(STATES[text] ?? "", text);

/** A table; `columns`: [heading, function(row) -> cell, class?]. On a phone each row becomes a card. */
export function table(caption, columns, rows, empty = "There is nothing here.") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([heading, , kind]) => h("th", { scope: "col", class: kind }, heading)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        columns.map(([heading, cell, kind]) => h("td", { class: kind, "data-label": heading }, h("div", {}, cell(row)))))))));
}

/** Name and value in pairs. */
export const facts = (...pairs) => h("dl", { class: "facts" },
  pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const panel = (title, ...children) => h("section", { class: "panel" },
  title && h("h2", {}, title), children);

export const figure = (name, value, more) => h("div", { class: "figure" },
  h("span", { class: "name" }, name), h("span", { class: "value" }, value), more && h("span", { class: "more" }, more));

/** A bar from 0 to `limit`, with marks at other limits; `calm`: being full is no warning. */
export function bar(label, value, limit, text, marks = [], calm = false) {
  const inner = h("div", { class: "bar-fill" });
  const share = limit ? Math.min(1, value / limit) : 0;
  inner.style.width = `${share * 100}%`;
  if (calm) inner.classList.add("calm"); else if (share >= 0.8) inner.classList.add("bad"); else if (share >= 0.4) inner.classList.add("warn");
  const lines = marks.map(([at, name]) => {
    const line = h("i", { title: name });
    line.style.left = `${Math.min(100, (at / limit) * 100)}%`;
    return line;
  });
  return h("div", { class: "bar-row" },
    h("div", { class: "bar-head" }, h("span", {}, label), h("span", { class: "num" }, text)),
    h("div", { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": calm ? value.toFixed(2) : Math.round(value), "aria-valuetext": text }, inner, lines));
}

/** Pages of a list; `counted`: whether `total` is all of them, and not what was read so far. */
export function pager(total, counted, offset, limit, go) {
  if (counted && total <= limit && !offset) return h("p", { class: "muted pager" }, `${f.count(total)} in all`);
  const last = Math.min(offset + limit, total);
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("button", { type: "button", disabled: !offset, onclick: () => go(Math.max(0, offset - limit)) }, "Previous"),
    h("span", { class: "num" }, `${f.count(offset + 1)}–${f.count(last)} of ${counted ? f.count(total) : "more"}`),
    h("button", { type: "button", disabled: last >= total, onclick: () => go(offset + limit) }, "Next"));
}

export const failure = (error) => h("div", { class: "notice bad", role: "alert" }, error.message ?? String(error));
export const notice = (kind, ...text) => h("div", { class: `notice ${kind}` }, text);

export function toast(text, kind = "good") {
  const made = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), kind === "bad" ? 10000 : 5000);
}

/** A text with what a search has found in it marked: text stays text, whatever is in it. */
export function marked(text, marks) {
  const parts = [];
  let done = 0;
  for (const [begin, end] of marks ? spans(text, marks) : []) {
    parts.push(text.slice(done, begin), h("mark", {}, text.slice(begin, end)));
    done = end;
  }
  return [...parts, text.slice(done)];
}

let fields = 0;
/** A labelled input; returns [row, input]. */
export function field(label, input, help) {
  const id = `field-${fields += 1}`;
  input.id = id;
  const note = help && h("span", { class: "help", id: `${id}-help` }, help);
  if (note) input.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, note);
}

export const select = (options, chosen, onchange) => {
  const made = h("select", { onchange: (event) => onchange?.(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return made;
};

/** A dialog with a form; `submit` returns a promise, and an error that it throws is shown inside. */
export function dialog(title, content, action, submit, kind = "primary") {
  const problem = h("div", {});
  const ok = h("button", { type: "submit", class: kind }, action);
  const form = h("form", { novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    ok.disabled = true;
    try { await submit(); box.close(); } catch (error) { fill(problem, failure(error)); } finally { ok.disabled = false; }
  } },
    h("h2", { id: "dialog-title" }, title), content, problem,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => box.close() }, "Cancel"), ok));
  const before = document.activeElement;
  const box = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { box.remove(); before?.focus?.(); } }, form);
  document.body.append(box);
  box.showModal();
  return box;
}

/** Ask before something that cannot be undone; `name`: what the person must type, if anything. */
export function confirm(title, text, action, submit, name = "") {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const content = [h("p", {}, text), name && field(`Type ${name} to confirm`, typed)];
  return dialog(title, content, action, async () => {
    if (name && typed.value.trim() !== name) throw new Error(`type ${name} to confirm`);
    await submit();
  }, "danger");
}

/** Put text where other programs take it from; false: this browser does not let us. */
export async function copy(text, within) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* no secure context, or not allowed */ }
  const field = h("textarea", { class: "unseen", readonly: true, "aria-hidden": "true", tabindex: "-1" });
  field.value = text; // as it is: attributes and text of elements show what is hidden
  within.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

/** A dialog with commands to copy; `list`: [label, command]. */
export function commands(title, list) {
  const before = document.activeElement;
  const said = h("p", { class: "muted", role: "status" });
  const box = h("dialog", { "aria-labelledby": "dialog-title", class: "wide", onclose: () => { box.remove(); before?.focus?.(); } },
    h("h2", { id: "dialog-title" }, title),
    list.filter(Boolean).map(([label, text]) => h("div", { class: "command" },
      h("div", { class: "command-head" }, h("span", {}, label), h("button", { type: "button", "aria-label": `Copy: ${label}`, onclick: async () => {
        said.textContent = (await copy(text, box)) ? `Copied: ${label}` : "This browser does not let the page copy: select the text";
      } }, "Copy")),
      h("pre", { tabindex: "0", "aria-label": label }, text))),
    said,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => box.close() }, "Close")));
  document.body.append(box);
  box.showModal();
}

export const copyButton = (title, list) => h("button", { type: "button", onclick: () => commands(title, list()) }, "Copy as command");

export const go = (hash) => { location.hash = hash; };
export const link = (hash, ...text) => h("a", { href: hash }, text);

export function later(work, ms) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => work(...args), ms); };
}
