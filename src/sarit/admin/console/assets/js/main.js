// The frame: navigation, theme, routes.  A view is a function(context) that fills its element and returns what ends it.

import * as api from "./api.js";
import { fill, h, icon, ICONS } from "./dom.js";
import { visible } from "./format.js";
import { failure } from "./parts.js";
import { cluster } from "./views/cluster.js";
import { groups, group } from "./views/groups.js";
import { link, links } from "./views/links.js";
import { logIn } from "./views/login.js";
import { overview } from "./views/overview.js";
import { query } from "./views/query.js";
import { schema, schemas } from "./views/schemas.js";
import { settings } from "./views/settings.js";
import { stream } from "./views/stream.js";
import { streams } from "./views/streams.js";
import { table, tables } from "./views/tables.js";

const PLACES = [["overview", "Overview"], ["streams", "Streams"], ["groups", "Groups"], ["tables", "Tables"], ["query", "Query"], ["schemas", "Schemas"], ["links", "Links"], ["cluster", "Cluster"], ["settings", "Settings"]];

// Places that not every process has, or that not everybody may see, and the field of the session that says so.
const OPTIONAL = { schemas: "schemas", query: "queries", links: "links" };

// First part of the path -> number of further parts -> view.
const ROUTES = {
  overview: { 0: overview }, streams: { 0: streams, 2: stream, 3: stream }, groups: { 0: groups, 2: group },
  tables: { 0: tables, 2: table }, query: { 0: query }, schemas: { 0: schemas, 2: schema }, links: { 0: links, 1: link }, cluster: { 0: cluster }, settings: { 0: settings },
};

const main = document.getElementById("main");
let end = null;
let shown = "";

function parse(hash) {
  const [where, params = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = where.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { parts: parts.length ? parts : ["overview"], params: Object.fromEntries(new URLSearchParams(params)) };
}

async function show() {
  if (location.hash === "#main") { main.focus(); return; }
  const { parts, params } = parse(location.hash);
  const [place, ...rest] = parts;
  const view = ROUTES[place]?.[rest.length];
  for (const found of document.querySelectorAll("#nav a")) {
    if (found.dataset.place === place) found.setAttribute("aria-current", "page"); else found.removeAttribute("aria-current");
  }
  end?.();
  end = null;
  const root = h("div", { class: "view" });
  const name = rest.length ? rest.slice(0, 2).join("/") : PLACES.find(([id]) => id === place)?.[1] ?? place;
  document.title = `${visible(name)} · Sarit`;
  fill(main, root);
  // A new page, for who cannot see it: focus goes to it, and to its heading when that is there.
  const where = parts.slice(0, 3).join("/");
  const moved = shown && shown !== where;
  shown = where;
  if (moved) { scrollTo(0, 0); main.focus({ preventScroll: true }); }
  if (!view) { fill(root, h("h1", {}, "Not found"), h("p", {}, "There is no such page. ", h("a", { href: "#/overview" }, "Overview"))); return; }
  try {
    const session = await api.getSession();
    const ended = [];
    end = () => ended.forEach((each) => each());
    await view({ root, parts: rest, params, writes: session.writes, user: session.user ?? "", schemas: session.schemas, queries: session.queries, onEnd: (each) => ended.push(each) });
  } catch (error) {
    if (asked) return;
    fill(root, h("h1", {}, name), failure(error));
  }
  // Unless it has moved on while the view was loading.
  if (moved && document.activeElement === main) {
    const heading = root.querySelector("h1");
    heading?.setAttribute("tabindex", "-1");
    heading?.focus({ preventScroll: true });
  }
}

function navigation() {
  fill(document.getElementById("nav"), PLACES.map(([id, text]) =>
    h("a", { href: `#/${id}`, "data-place": id, hidden: id in OPTIONAL }, icon(ICONS[id]), h("span", {}, text))));
}

/** Show the places of what this process has. */
function showOptional(session) {
  for (const [id, what] of Object.entries(OPTIONAL)) document.querySelector(`#nav a[data-place=${id}]`).hidden = !session[what];
}

function theme() {
  const button = document.getElementById("theme");
  const order = ["auto", "light", "dark"];
  const now = () => document.documentElement.dataset.theme ?? "auto";
  const draw = () => {
    fill(button, icon(ICONS[now()]), h("span", {}, now()));
    button.setAttribute("aria-label", `Theme: ${now()}. Change it`);
    document.dispatchEvent(new Event("theme"));
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(now()) + 1) % order.length];
    if (next === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("sarit-theme", next); } catch { /* storage is off */ }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

/** Whether the node answers, in the corner: one live connection for the whole page. */
function status() {
  const place = document.getElementById("link");
  const draw = (kind, text) => { place.className = `link ${kind}`; if (place.textContent !== text) place.textContent = text; };
  api.live("/overview/live", {}, {
    overview: (found) => {
      draw(found.health === "ok" ? "good" : found.health === "failed" ? "bad" : "warn", found.health === "ok" ? "healthy" : found.health);
      document.dispatchEvent(new CustomEvent("overview", { detail: found }));
    },
  }, (kind, text) => { if (kind !== "open") draw("bad", "not connected"); if (text) place.title = text; });
}

/** Who has logged in, with the way out; nothing where nobody logs in. */
function account(user) {
  if (!user) return;
  document.getElementById("account").replaceChildren(
    h("span", { class: "user", title: user }, user),
    h("button", { type: "button", class: "ghost", onclick: async () => { try { await api.logOut(); } finally { location.reload(); } } }, "Log out"));
}

let asked = false;
function askToLogIn() {
  if (asked) return;
  asked = true;
  end?.();
  end = null;
  removeEventListener("hashchange", show);
  document.body.classList.add("logged-out");
  document.title = "Log in · Sarit";
  // A new page: nothing of what another user saw stays in memory.
  logIn(main, () => location.reload());
}

async function begin() {
  document.addEventListener("log-in", askToLogIn);
  try {
    const session = await api.getSession();
    account(session.user);
    showOptional(session);
  } catch { /* the page shows it */ }
  if (asked) return;
  status();
  addEventListener("hashchange", show);
  await show();
}

navigation();
theme();
begin();
