// Links to other installations: how far they are, what fails; pause and resume.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, copyButton, facts, failure, figure, link as anchor, notice, panel, state, table, toast } from "../parts.js";
import * as shell from "../shell.js";

const INTERVAL_MS = 3000;
const arrow = (one) => (one.runs_here ? (one.direction === "push" ? "to the peer" : "from the peer") : "written by the peer");
const peer = (one) => one.peer || one.peer_installation || "–";
// How far it is, the installation knows that runs it.
const known = (one, shown) => (one.runs_here ? shown : "–");
const states = (one) => [state(one.state), one.runs_here && (one.state === "active" || one.state === "draining") && [" ", badge(one.up ? "good" : "bad", one.up ? "up" : "down")]];
const problem = (one) => [one.failing > 0 && badge("bad", `${f.count(one.failing)} not copied`), one.lost_bytes > 0 && [" ", badge("bad", `${f.bytes(one.lost_bytes)} lost`)],
  one.problem && h("div", { class: "why" }, one.problem)];

/** Ask again and again while the page is seen, and nothing on it has the focus. */
function repeat(body, work, onEnd) {
  let going = true;
  const seen = () => !document.hidden && !body.contains(document.activeElement) && !document.querySelector("dialog[open]");
  const timer = setInterval(async () => {
    if (!seen()) return;
    try { const draw = await work(); if (going) draw(); } catch (error) { if (going) fill(body, failure(error)); }
  }, INTERVAL_MS);
  onEnd(() => { going = false; clearInterval(timer); });
}

export async function links({ root, onEnd }) {
  const body = h("div", {});
  fill(root, h("div", { class: "head" }, h("h1", {}, "Links"), h("div", { class: "actions" },
    copyButton("Copy as command", () => [
      ["All links", shell.command("sarit", "link", "list")],
      ["A new link that copies the streams of a scope to another installation", shell.command("sarit", "link", "create", "my-link", "--push", "core.example:9090", "--include", "my-scope/*")],
    ]))), body);
  const read = async () => {
    const found = (await api.get("/links")).links;
    return () => fill(body, table("Links", [
      ["Link", (one) => anchor(`#/links/${encodeURIComponent(one.link)}`, one.link)],
      ["Copies", arrow], ["Peer", peer], ["State", states],
      ["Streams", (one) => known(one, f.count(one.streams)), "num"],
      ["Behind", (one) => known(one, `${f.bytes(one.lag_bytes)}, ${f.duration(one.lag_ms)}`), "num"],
      ["Copied", (one) => known(one, f.bytes(one.copied_bytes)), "num"],
      ["Problems", problem],
    ], found, "There is no link. `sarit link create` makes one."));
  };
  (await read())();
  repeat(body, read, onEnd);
}

const yes = (value) => (value ? "yes" : "no");
const list = (texts) => (texts.length ? texts.map((one) => h("div", {}, h("code", {}, one))) : "–");

function start(ms) {
  if (ms === 0) return "all there is";
  return ms < 0 ? "what comes" : `since ${f.moment(ms)}`;
}

const chosen = ({ settings: s }) => facts(
  ["Streams", list(s.include)], ["But not", list(s.exclude)],
  ["Priorities", list(s.priorities.map((one) => `${one.glob}=${one.level}`))],
  ["Begins with", start(s.start_ms)],
  ["Log-in", s.user ? [s.user, s.password_from && `, password from ${s.password_from === "env" ? "the environment" : "a file"}`] : "none"],
  s.ca && ["Certificates", h("code", {}, s.ca)],
  ["At most", s.bytes_per_second ? f.rate(s.bytes_per_second) : "as fast as it can"], ["Times of the day (UTC)", s.window || "always"],
  ["Held at the source", s.hold_bytes ? `${f.bytes(s.hold_bytes)}; when full: ${s.overflow}` : "nothing"],
  ["Own retention of mirrors", yes(s.retention)], ["Follows truncation", yes(s.follow_truncation)],
  ["Tables", yes(s.tables)], ["Schemas", yes(s.registry)], ["Positions of reader groups", yes(s.groups)],
  ["Begins again after a gap", yes(s.restart)], ["Gives up what is divergent", yes(s.discard_divergent)]);

const commandsOf = (one) => [
  ["The link", shell.command("sarit", "link", "show", one.link)],
  one.runs_here && ["Promote its mirrors: the source becomes read-only, the rest is copied", shell.command("sarit", "link", "promote", one.link, "--planned")],
  !(one.runs_here && one.direction === "push") && ["Promote its mirrors without the source: it is lost, or nobody writes to it", shell.command("sarit", "link", "promote", one.link, "--unplanned")],
  ["Delete it; its mirrors stay", shell.command("sarit", "link", "delete", one.link)],
];

export async function link({ root, parts, writes, onEnd }) {
  const call = api.path("links", ...parts);
  const figures = h("div", { class: "figures" });
  const actions = h("div", { class: "actions" });
  const body = h("div", {});
  let shown = "";
  let found = await api.get(call);
  async function change(action, said) {
    try {
      found = await api.send("POST", `${call}/${action}`, {});
      toast(said);
      draw();
    } catch (error) { toast(error.message, "bad"); }
  }
  const buttons = () => {
    const now = `${found.state} ${found.runs_here}`;
    if (shown === now) return; // what the keyboard is in stays as it is
    shown = now;
    const may = writes && found.runs_here;
    fill(actions, copyButton("Copy as command", () => commandsOf(found)),
      may && found.state === "active" && h("button", { type: "button", onclick: () => change("pause", `${found.link} is paused`) }, "Pause"),
      may && found.state === "paused" && h("button", { type: "button", onclick: () => change("resume", `${found.link} copies again`) }, "Resume"));
  };
  const draw = () => {
    buttons();
    fill(figures,
      figure("State", states(found)), figure("Behind", known(found, f.bytes(found.lag_bytes)), known(found, f.duration(found.lag_ms))),
      figure("Copied", known(found, f.bytes(found.copied_bytes)), found.lost_bytes ? `${f.bytes(found.lost_bytes)} lost` : ""),
      figure("Streams", known(found, f.count(found.streams)), found.failing ? `${f.count(found.failing)} not copied` : ""));
    fill(body,
      found.problem && notice(found.state === "active" && !found.up ? "bad" : "warn", found.problem),
      !found.runs_here && notice("info", "It runs in the other installation: see there how far it is."),
      panel("What is not copied", table("Streams that are not copied", [
        ["Stream", (one) => h("code", {}, one.stream)], ["Why", (one) => one.text],
      ], found.problems, "Nothing fails."),
      found.failing > found.problems.length && h("p", { class: "muted note" }, `Some of ${f.count(found.failing)}.`)),
      h("div", { class: "grid" },
        panel("Peer", facts(["Copies", arrow(found)], ["Address", found.peer || "–"], ["Installation", found.peer_installation ? h("code", {}, found.peer_installation) : "not known yet"],
          ["Last contact", found.contact_ms ? f.moment(found.contact_ms) : "–"], ["Its clock is ahead by", `${f.count(found.clock_skew_ms)} ms`],
          ["Compressed", yes(found.compressed)], ["Runs on", found.holder || "–"], ["Created", f.moment(found.created_ms)])),
        found.runs_here && panel("Settings", chosen(found))));
  };
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, anchor("#/links", "Links")),
    h("div", { class: "head" }, h("h1", {}, found.link), actions), figures, body);
  draw();
  repeat(body, async () => { found = await api.get(call); return draw; }, onEnd);
}
