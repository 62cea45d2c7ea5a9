// Calls of the node.  A change carries the token of this page's session; a restarted node has another one.

let session = null;

export class Failure extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function request(method, where, body, token) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers["X-Sarit-Token"] = token;
  let reply;
  try {
    reply = await fetch(`/console/api${where}`, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "the node does not answer");
  }
  let found = null;
  try { found = await reply.json(); } catch { /* not JSON */ }
  if (reply.status === 401 && where !== "/log-in") document.dispatchEvent(new CustomEvent("log-in"));
  if (!reply.ok) throw new Failure(reply.status, found?.error ?? `the node answered ${reply.status}`);
  return found;
}

export const query = (params) => {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null && value !== 0);
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
};

export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;

export const get = (where, params = {}) => request("GET", where + query(params));

export async function getSession() {
  if (!session) {
    const found = await get("/session");
    if (found.log_in) {
      document.dispatchEvent(new CustomEvent("log-in"));
      throw new Failure(401, "log in");
    }
    session = found;
  }
  return session;
}

export async function send(method, where, body = {}) {
  const { token } = await getSession();
  try {
    return await request(method, where, body, token);
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 403) throw error;
    // The node may have been restarted: with its new token once more.
    session = null;
    const fresh = await getSession();
    if (fresh.token === token) throw error;
    return request(method, where, body, fresh.token);
  }
}

/** The password goes to the node and is kept nowhere here: a cookie that no script can read stands for the log-in. */
export const logIn = (user, password) => request("POST", "/log-in", { user, password });

export const logOut = () => send("POST", "/log-out");

/** A call whose answer is a document a line, each with one name; `take`: function(name, value) of each. */
export async function lines(where, body, take, signal) {
  const post = (token) => fetch(`/console/api${where}`, {
    method: "POST", headers: { "Content-Type": "application/json", "X-Sarit-Token": token }, body: JSON.stringify(body), cache: "no-store", credentials: "same-origin", signal,
  }).catch((error) => { throw error.name === "AbortError" ? error : new Failure(0, "the node does not answer"); });
  const { token } = await getSession();
  let reply = await post(token);
  if (reply.status === 403) {
    session = null; // the node may have been restarted
    const fresh = await getSession();
    if (fresh.token !== token) reply = await post(fresh.token);
  }
  if (reply.status === 401) document.dispatchEvent(new CustomEvent("log-in"));
  if (!reply.ok) {
    let text = `the node answered ${reply.status}`;
    try { text = (await reply.json()).error ?? text; } catch { /* not JSON */ }
    throw new Failure(reply.status, text);
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const found = (left + value).split("\n");
    left = found.pop();
    for (const line of found) for (const [name, each] of Object.entries(JSON.parse(line))) take(name, each);
  }
}

/** Server-sent events; `on`: name -> function(document). Returns what closes it. */
export function live(where, params, on, onState = () => {}) {
  const source = new EventSource(`/console/api${where}${query(params)}`);
  let ended = false;
  for (const [name, handler] of Object.entries(on)) {
    source.addEventListener(name, (event) => handler(JSON.parse(event.data), event.lastEventId));
  }
  const finish = (text) => { ended = true; source.close(); onState("ended", text); };
  source.addEventListener("failed", (event) => finish(JSON.parse(event.data).error));
  source.addEventListener("open", () => onState("open", ""));
  source.addEventListener("error", async () => {
    if (ended) return;
    if (source.readyState !== EventSource.CLOSED) { onState("lost", "the connection is lost; trying again"); return; }
    // Refused: the browser does not try again, and does not say why.
    let text = "the node refused";
    try { await (await fetch(`/console/api${where}${query(params)}`, { signal: AbortSignal.timeout(2000) })).json().then((d) => { text = d.error ?? text; }); } catch { /* no reason */ }
    finish(text);
  });
  return () => { ended = true; source.close(); };
}
