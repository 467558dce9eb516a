// The state of the live stream of a page, and how it comes back. hx-sse reads the stream, swaps what comes, and reconnects
// what has once been connected. This file adds what it leaves out:
//
// - a first connection that fails is tried again;
// - a connection that brings nothing for SILENT_MS, not even a sign of life, is given up: a machine that slept has lost it
//   without being told;
// - a browser that swaps more slowly than news come gets them from its buffers, later and later. A message carries the
//   server's time, so its delay is known: one that is BEHIND_MS late is skipped with all others in the buffers, and a new
//   connection begins with the newest state.
(() => {
  "use strict";
  const STALE_S = 6;
  const SILENT_MS = 30000;
  const BEHIND_MS = 2000;
  const AGAIN_MS = { first: 500, most: 30000 };
  const stream = {
    newsAt: Date.now(), heardAt: performance.now(), connection: null, asking: false, tries: 0, tryAt: 0,
    least: Infinity, paused: false, trouble: null, signedOut: false,
  };
  const place = () => document.getElementById("stream");

  const show = (state, text) => {
    const shown = document.getElementById("live-state");
    if (!shown) return;
    if (shown.dataset.state !== state) shown.dataset.state = state;
    if (shown.textContent !== text) shown.textContent = text;
    document.body.toggleAttribute("data-stale", state === "stale");
  };
  const watch = () => {
    if (!place() || document.hidden) return;
    revive();
    if (stream.signedOut) return show("stale", "Signed out");
    if (stream.paused) return show("paused", "Paused: too many live pages; goes on when one is closed");
    const behind = Math.round((Date.now() - stream.newsAt) / 1000);
    if (stream.trouble) show("stale", "Stale: " + stream.trouble);
    else if (behind >= STALE_S) show("stale", `Stale: ${behind} s behind, reconnecting`);
    else show("live", "Live");
  };

  const revive = () => {
    const now = performance.now();
    const { connection } = stream;
    if (connection) {
      if (now - stream.heardAt < SILENT_MS) return;
      stream.heardAt = now;
      drop(connection);
    } else if (!stream.asking && !stream.signedOut && now >= stream.tryAt) {
      stream.tryAt = now + Math.min(AGAIN_MS.most, AGAIN_MS.first * 2 ** stream.tries++);
      place().dispatchEvent(new CustomEvent("again"));
    }
  };
  const drop = (connection) => {
    if (connection.reader) connection.reader.cancel();
    else connection.abortController?.abort();
  };

  // ---- the request for the stream, until it is answered
  const isOurs = (event) => event.target === place();
  document.addEventListener("htmx:before:request", (event) => { if (isOurs(event)) stream.asking = true; });
  document.addEventListener("htmx:finally:request", (event) => { if (isOurs(event)) stream.asking = false; });
  document.addEventListener("htmx:response:error", (event) => {
    if (isOurs(event) && event.detail.ctx.response.status === 401) signOut();
  });

  // ---- the connection
  document.addEventListener("htmx:sse:after:connection", (event) => {
    stream.connection = event.detail.connection;
    stream.heardAt = performance.now();
    stream.least = Infinity;
    stream.tries = 0;
  });
  document.addEventListener("htmx:sse:close", () => { stream.connection = null; });
  document.addEventListener("htmx:sse:error", (event) => { if (event.detail.status === 401) signOut(); });
  document.addEventListener("htmx:sse:before:message", (event) => {
    const { connection, message } = event.detail;
    stream.heardAt = performance.now();
    const apart = stream.heardAt - Number(message.id);
    stream.least = Math.min(stream.least, apart);
    const behind = apart - stream.least;
    if (behind < BEHIND_MS) return;
    event.preventDefault();
    connection.config.reconnectDelay = Math.min(AGAIN_MS.most, behind);
    drop(connection);
  });
  document.addEventListener("htmx:sse:after:message", (event) => {
    const { connection, message } = event.detail;
    if (message.event) return;
    Object.assign(stream, { newsAt: Date.now(), paused: false, trouble: null });
    connection.config.reconnectDelay = AGAIN_MS.first;
    watch();
    document.dispatchEvent(new CustomEvent("penstock:news"));
  });
  document.addEventListener("paused", () => { stream.paused = true; watch(); });
  document.addEventListener("trouble", (event) => { stream.trouble = event.detail.data; watch(); });

  const signOut = () => {
    stream.signedOut = true;
    const again = document.getElementById("sign-in-again");
    if (again && !again.open) again.showModal();
    watch();
  };
  document.addEventListener("penstock:signed-in", () => { stream.signedOut = false; stream.tryAt = 0; });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) show("paused", "Paused: tab was hidden");
    else stream.newsAt = Date.now();
  });
  document.addEventListener("DOMContentLoaded", () => setInterval(watch, 1000));
})();
