// Elements from values.  Text is always set as text: nothing that comes from a stream is ever parsed as HTML.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element; `props`: attributes, `class`, `on…` listeners, `value`/`checked`/`disabled`/`hidden` properties. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (["value", "checked", "disabled", "hidden", "selected", "open", "indeterminate"].includes(name)) made[name] = value;
    else made.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

/** Replace what is in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/** A small drawing of strokes, hidden from screen readers. */
export function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const ICONS = {
  overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 10h7v10h-7zM4 13h7v7H4z",
  streams: "M3 7c3-4 6-4 9 0s6 4 9 0M3 13c3-4 6-4 9 0s6 4 9 0M3 19c3-4 6-4 9 0s6 4 9 0",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c0-4 3-6 6.500-6s6.500 2 6.500 6M16 5.500a3 3 0 0 1 0 5.500M17.500 14.500c2.500.500 4 2.500 4 5.500",
  tables: "M4 5h16v14H4zM4 10h16M4 14.500h16M10 5v14",
  query: "M4 6l6 6-6 6M12 18h8",
  schemas: "M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h5",
  links: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1.500 1.500M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1.500-1.500",
  cluster: "M12 3v5M12 8l-6 6M12 8l6 6M9.500 3h5M3 14h6v6H3zM15 14h6v6h-6z",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 7m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M9 17m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  light: "M12 8a4 4 0 1 0 0 8a4 4 0 1 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  dark: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
};
