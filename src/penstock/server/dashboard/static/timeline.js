// The timeline of a run: arrows move between its spans, Enter opens one, + - 0 zoom, f follows.
// Each view is an address, so a zoom is a page; only the span that one looks at is kept here.
(() => {
  "use strict";
  const $ = (selector, within = document) => within.querySelector(selector);
  const lanes = () => $("#lanes");
  const rows = () => [...document.querySelectorAll("#lanes svg.lane")].map((lane) => [...lane.querySelectorAll("rect[data-span]")]).filter((row) => row.length);
  const ZOOMED = "penstock-zoomed";
  let at = null; // row and place in it

  const current = () => (at ? rows()[at.row]?.[at.place] : null);
  const mark = () => {
    for (const each of document.querySelectorAll("#lanes rect[data-at]")) each.removeAttribute("data-at");
    const span = current();
    const said = $("#span-said");
    if (said) {
      said.hidden = !span;
      const text = span ? span.dataset.span + (span.dataset.open ? ". Enter opens its event." : ".") : "";
      if (said.textContent !== text) said.textContent = text;
    }
    span?.setAttribute("data-at", "");
  };
  const move = (down, right) => {
    const all = rows();
    if (!all.length) return;
    if (!at) at = { row: 0, place: 0 };
    else if (right) {
      at.place += right;
      if (at.place >= all[at.row].length) at = at.row + 1 < all.length ? { row: at.row + 1, place: 0 } : { row: at.row, place: all[at.row].length - 1 };
      if (at.place < 0) at = at.row > 0 ? { row: at.row - 1, place: all[at.row - 1].length - 1 } : { row: 0, place: 0 };
    } else {
      const row = Math.max(0, Math.min(all.length - 1, at.row + down));
      at = { row, place: Math.min(at.place, all[row].length - 1) };
    }
    mark();
    current()?.closest("tr").scrollIntoView({ block: "nearest" });
  };
  const open = (span) => {
    if (span?.dataset.open) window.htmx.ajax("GET", span.dataset.open, { target: "#dialog-body", swap: "innerHTML" });
  };
  const zoom = (key) => {
    const link = $(`#run-timeline [data-zoom="${CSS.escape(key)}"]`);
    if (!link) return false;
    const address = new URL(link.href);
    const span = key === "+" ? current() : null;
    if (span && address.searchParams.has("from")) { // closer to what one looks at
      const half = (Number(address.searchParams.get("to")) - Number(address.searchParams.get("from"))) / 2;
      const whole = Number(lanes().dataset.whole);
      const middle = (Number(span.dataset.from) + Number(span.dataset.to)) / 2;
      const from = Math.round(Math.max(0, Math.min(middle - half, whole - 2 * half)));
      address.searchParams.set("from", from);
      address.searchParams.set("to", Math.round(from + 2 * half));
    }
    address.hash = ""; // going to a fragment would take the focus away
    sessionStorage.setItem(ZOOMED, "1");
    location.assign(address);
    return true;
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]") || event.target.closest?.("input, textarea, select")) return;
    if (["+", "-", "0", "f"].includes(event.key)) {
      if (zoom(event.key)) event.preventDefault();
      return;
    }
    if (document.activeElement !== lanes()) return;
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) move(...step);
    else if (event.key === "Enter" && current()) open(current());
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  document.addEventListener("click", (event) => {
    const span = event.target.closest?.("#lanes rect[data-open]");
    if (!span) return;
    rows().forEach((row, index) => { if (row.includes(span)) at = { row: index, place: row.indexOf(span) }; });
    mark();
    open(span);
  });
  document.addEventListener("penstock:news", mark);
  document.addEventListener("DOMContentLoaded", () => {
    if (!sessionStorage.getItem(ZOOMED)) return;
    sessionStorage.removeItem(ZOOMED);
    lanes()?.focus({ preventScroll: true });
    $("#run-timeline")?.scrollIntoView();
  });
})();
