// The segment heat map: keys upwards, time to the right, colour for the rate of a segment.
//
// The node sends what it recorded (about one column a minute) and then a column every two seconds.  The newest time is
// at the right edge.  Splits and merges are lines at their time over their keys.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { notice, panel, select, table } from "../parts.js";

const SPANS = [["120", "2 minutes"], ["600", "10 minutes"], ["3600", "1 hour"]];
const RAMPS = {
  light: ["#e3e9ed", "#cfe8e4", "#8fd0c8", "#45aba9", "#1a7a8a", "#14476b", "#1d1f4b"],
  dark: ["#222c37", "#173a4a", "#16606b", "#1f8f80", "#63bd6a", "#c7dc5a", "#fff3a3"],
};
const MAX_COLUMNS = 600;
const PAD = { left: 44, right: 8, top: 8, bottom: 22 };

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function channels(color) { return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)); }

/** A colour for 0..1 on a ramp. */
function shade(ramp, x) {
  const at = Math.max(0, Math.min(1, x)) * (ramp.length - 1);
  const low = Math.min(Math.floor(at), ramp.length - 2);
  const [a, b] = [channels(ramp[low]), channels(ramp[low + 1])];
  return `rgb(${a.map((v, n) => Math.round(v + (b[n] - v) * (at - low))).join(" ")})`;
}

export async function heat({ root, call, info, onEnd }) {
  let columns = [];
  let span = 120;
  let cursor = null; // { column, cell }: what the keyboard or the pointer is at
  let pinned = false;
  const canvas = h("canvas", { "aria-hidden": "true" });
  const box = h("div", {
    class: "heat", tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-describedby": "heat-help",
    "aria-label": `Rates of ${info.scope}/${info.stream} by key and time`,
  }, canvas);
  const readout = h("p", { class: "readout", role: "status", "aria-live": "polite" }, "Waiting for the first sample…");
  const legend = h("div", { class: "legend" });
  const changesList = h("div", {});
  const current = h("div", {});
  const state = h("span", { class: "muted", role: "status" });
  const spans = select(SPANS, String(span), (value) => { span = Number(value); draw(); });
  spans.setAttribute("aria-label", "Time shown");
  fill(root,
    panel(null, h("div", { class: "heat-head" }, h("div", {}, h("h2", {}, "Rate by key and time"), state), spans), box, legend, readout,
      h("p", { id: "heat-help", class: "muted keys-help" }, "Arrow keys move over times and keys, Home and End to the oldest and newest time.")),
    h("div", { class: "grid" }, panel("Active segments", current), panel("Splits and merges", changesList)));

  // -- scales ----------------------------------------------------------------------------------
  let most = 1;
  const newest = () => (columns.length ? columns[columns.length - 1].end : Date.now());
  // Logarithmic, from a hundredth of the highest rate: one hot segment does not hide the others.
  const level = (rate) => (rate <= 0 ? 0 : Math.max(0.08, 1 + Math.log10(rate / most) / 2));
  const x = (time, width) => PAD.left + ((time - (newest() - span * 1000)) / (span * 1000)) * (width - PAD.left - PAD.right);
  const y = (key, height) => PAD.top + (1 - key) * (height - PAD.top - PAD.bottom);
  const shown = () => columns.filter((c) => c.end > newest() - span * 1000);

  function draw() {
    const { clientWidth: width, clientHeight: height } = box;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    const ramp = RAMPS[isDark() ? "dark" : "light"];
    const style = getComputedStyle(document.documentElement);
    const [ink, line, paper, accent] = ["--muted", "--line", "--panel", "--mark"].map((name) => style.getPropertyValue(name).trim());
    const visible = shown();
    most = Math.max(1, ...visible.flatMap((c) => c.cells.map((cell) => cell[3])));
    g.fillStyle = paper;
    g.fillRect(0, 0, width, height);
    g.save();
    g.beginPath();
    g.rect(PAD.left, PAD.top, width - PAD.left - PAD.right, height - PAD.top - PAD.bottom);
    g.clip();
    for (const column of visible) {
      const [left, right] = [x(column.start, width), x(column.end, width)];
      for (const [, low, high, rate] of column.cells) {
        const [top, bottom] = [y(high, height), y(low, height)];
        g.fillStyle = shade(ramp, level(rate));
        // A little wider, so that no seam shows between columns; a line apart from the segment below.
        const gap = bottom - top > 4 ? 1 : 0;
        g.fillRect(left, top, right - left + 0.6, bottom - top - gap);
      }
    }
    g.strokeStyle = accent;
    g.lineWidth = 1.5;
    for (const column of visible) {
      for (const change of column.changes) {
        const at = x(column.end, width);
        g.beginPath();
        g.moveTo(at, y(change.high, height) + 1);
        g.lineTo(at, y(change.low, height) - 1);
        g.stroke();
      }
    }
    if (cursor && visible.includes(cursor.column)) {
      const { column, cell } = cursor;
      g.strokeStyle = style.getPropertyValue("--text").trim();
      g.lineWidth = 2;
      const left = x(column.start, width);
      g.strokeRect(left - 1, y(cell[2], height), Math.max(4, x(column.end, width) - left + 2), y(cell[1], height) - y(cell[2], height));
    }
    g.restore();
    axes(g, width, height, ink, line);
    drawLegend(ramp);
  }

  function axes(g, width, height, ink, line) {
    g.fillStyle = ink;
    g.strokeStyle = line;
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const at of [0, 0.25, 0.5, 0.75, 1]) g.fillText(f.key(at), PAD.left - 6, Math.min(height - PAD.bottom, Math.max(PAD.top + 4, y(at, height))));
    g.textAlign = "center";
    g.textBaseline = "top";
    const steps = width < 500 ? 3 : 6;
    for (let n = 0; n <= steps; n += 1) {
      const time = newest() - span * 1000 * (1 - n / steps);
      g.textAlign = n === steps ? "right" : n === 0 ? "left" : "center";
      g.fillText(f.clock(time), x(time, width), height - PAD.bottom + 6);
    }
    g.strokeRect(PAD.left - 0.5, PAD.top - 0.5, width - PAD.left - PAD.right + 1, height - PAD.top - PAD.bottom + 1);
  }

  let drawnLegend = "";
  function drawLegend(ramp) {
    const marks = [0, most / 100, most / 10, most / 3, most];
    const { scaling } = info;
    const text = `${marks}${ramp}`;
    if (text === drawnLegend) return;
    drawnLegend = text;
    fill(legend, h("span", {}, "Rate of a segment"), marks.map((rate) => {
      const swatch = h("i", {});
      swatch.style.background = shade(ramp, level(rate));
      return h("span", { class: "swatch" }, swatch, h("span", { class: "num" }, rate ? f.rate(rate) : "idle"));
    }), h("span", { class: "swatch" }, h("i", { class: "mark-line" }), "split or merge"),
    scaling.type === "bytes" && h("span", { class: "muted" }, `target ${f.rate(scaling.target * 1024)}`),
    scaling.type === "events" && h("span", { class: "muted" }, `target ${f.count(scaling.target)} events/s`));
  }

  // -- values ------------------------------------------------------------------------------------
  const nameOf = ([segment, low, high]) => `${segment ? `segment ${segment}, ` : ""}keys ${f.keys(low, high)}`;
  function say() {
    if (!cursor) { readout.textContent = columns.length ? "Point at the map, or move over it with the arrow keys." : "Waiting for the first sample…"; return; }
    const { column, cell } = cursor;
    const changes = column.changes.map((c) => `; ${c.kind} of ${c.before.join(", ")} into ${c.after.join(", ")}`).join("");
    readout.textContent = `${f.clock(column.start)} to ${f.clock(column.end)}: ${nameOf(cell)}: ${f.rate(cell[3])}${changes}`;
  }
  let listed = "";
  function lists() {
    const last = columns[columns.length - 1];
    const minute = columns.filter((c) => c.end > newest() - 60000);
    const mean = (name) => {
      const found = minute.map((c) => [c.end - c.start, c.cells.find((cell) => cell[0] === name)]).filter(([, cell]) => cell);
      const time = found.reduce((sum, [ms]) => sum + ms, 0);
      return time ? found.reduce((sum, [ms, cell]) => sum + ms * cell[3], 0) / time : 0;
    };
    const top = current.querySelector(".scroll")?.scrollTop ?? 0;
    fill(current, table("Active segments and their rates", [
      ["Segment", (c) => h("code", {}, c[0] || "several")], ["Keys", (c) => f.keys(c[1], c[2])],
      ["Now", (c) => f.rate(c[3]), "num"], ["Last minute", (c) => (c[0] ? f.rate(mean(c[0])) : "–"), "num"],
    ], last ? last.cells.filter(([name]) => !last.changes.some((c) => c.before.includes(name))).reverse() : [], "No sample yet."));
    if (current.querySelector(".scroll")) current.querySelector(".scroll").scrollTop = top;
    const changes = columns.flatMap((c) => c.changes.map((change) => ({ ...change, at: c.end }))).reverse().slice(0, 100);
    const text = changes.map((c) => c.at + c.after.join()).join();
    if (text === listed) return;
    listed = text;
    fill(changesList, table("Splits and merges", [
      ["Time", (c) => f.clock(c.at)], ["What", (c) => c.kind], ["From", (c) => h("code", {}, c.before.join(" "))],
      ["To", (c) => h("code", {}, c.after.join(" "))], ["Keys", (c) => f.keys(c.low, c.high)],
    ], changes, "None in this time."));
  }

  box.addEventListener("keydown", (event) => {
    const visible = shown();
    if (!visible.length || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") { cursor = null; say(); draw(); return; }
    const at = cursor ? visible.indexOf(cursor.column) : -1;
    const next = { ArrowLeft: at < 0 ? visible.length - 1 : at - 1, ArrowRight: at < 0 ? visible.length - 1 : at + 1, Home: 0, End: visible.length - 1 }[event.key];
    const column = visible[Math.max(0, Math.min(visible.length - 1, next ?? (at < 0 ? visible.length - 1 : at)))];
    const middle = cursor ? (cursor.cell[1] + cursor.cell[2]) / 2 : 0.5;
    let cell = column.cells.findIndex(([, low, high]) => low <= middle && middle < high);
    if (cell < 0) cell = 0;
    if (event.key === "ArrowUp") cell = Math.min(column.cells.length - 1, cell + 1);
    if (event.key === "ArrowDown") cell = Math.max(0, cell - 1);
    cursor = { column, cell: column.cells[cell] };
    pinned = true;
    say();
    draw();
  });
  box.addEventListener("pointermove", (event) => {
    const bounds = box.getBoundingClientRect();
    const time = newest() - span * 1000 + ((event.clientX - bounds.left - PAD.left) / (bounds.width - PAD.left - PAD.right)) * span * 1000;
    const place = 1 - (event.clientY - bounds.top - PAD.top) / (bounds.height - PAD.top - PAD.bottom);
    const column = columns.find((c) => c.start <= time && time < c.end);
    const cell = column?.cells.find(([, low, high]) => low <= place && place < high);
    cursor = cell ? { column, cell } : null;
    pinned = false;
    say();
    draw();
  });
  box.addEventListener("pointerleave", () => { if (!pinned) { cursor = null; say(); draw(); } });

  // -- live --------------------------------------------------------------------------------------
  const add = (found) => {
    columns.push(...found);
    if (columns.length > MAX_COLUMNS) columns = columns.slice(-MAX_COLUMNS);
    if (!cursor) say();
    lists();
    draw();
  };
  const close = api.live(`${call}/heat/live`, {}, {
    columns: (found) => {
      columns = [];
      cursor = null;
      // As much time as is known, so that little of the map is empty.
      const known = (Date.now() - (found.columns[0]?.start ?? Date.now())) / 1000;
      span = Number(SPANS.find(([seconds]) => known <= Number(seconds) * 1.2)?.[0] ?? SPANS[SPANS.length - 1][0]);
      spans.value = String(span);
      add(found.columns);
    },
    column: (found) => {
      for (const c of found.changes) state.textContent = `${f.clock(found.end)}: ${c.kind} of ${c.before.join(", ")} into ${c.after.join(", ")}`;
      add([found]);
    },
  }, (kind, text) => { if (kind === "ended") fill(readout, notice("warn", text)); });
  const resized = new ResizeObserver(draw);
  resized.observe(box);
  document.addEventListener("theme", draw);
  onEnd(() => { close(); resized.disconnect(); document.removeEventListener("theme", draw); });
}
