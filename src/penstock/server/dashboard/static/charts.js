// Charts: a <figure data-chart> carries its numbers as JSON in data-points, and a sentence as its label.
// uPlot draws them in the theme's colours, which are read again at a switch.
(() => {
  "use strict";
  const probe = () => {
    let found = document.getElementById("colour-probe");
    if (!found) {
      found = document.createElement("span");
      found.id = "colour-probe";
      found.hidden = true;
      document.body.append(found);
    }
    return found;
  };
  const colour = (token) => {
    const element = probe();
    element.style.color = `var(--${token})`;
    return getComputedStyle(element).color;
  };
  const drawn = new Map();

  const draw = (figure) => {
    const text = figure.dataset.points;
    if (!text || !window.uPlot) return;
    const theme = colour("ink");
    const width = figure.clientWidth;
    const before = drawn.get(figure);
    if (!width || (before && before.text === text && before.theme === theme && before.width === width)) return;
    const { series, points } = JSON.parse(text);
    const axis = { stroke: colour("faint"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const options = {
      width, height: 150, cursor: { points: { size: 5 } }, legend: { show: false }, padding: [8, 6, 0, 0],
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((t) => new Date(t * 1e3).toISOString().slice(11, ticks.some((each) => each % 60) ? 19 : 16)), space: 60, size: 24 },
        { ...axis, size: 44, values: (_, ticks) => ticks.map((t) => (t >= 10000 ? `${t / 1000} k` : String(t))) },
      ],
      series: [{}, ...series.map((label, at) => ({
        label, stroke: colour(`series-${at + 1}`), width: 1.75, points: { show: false },
        fill: at === 0 ? colour("glow") : undefined, dash: at > 2 ? [6, 3] : undefined,
      }))],
    };
    before?.plot.destroy();
    let place = figure.querySelector(".plot");
    if (!place) {
      place = document.createElement("div");
      place.className = "plot";
      place.setAttribute("aria-hidden", "true");
      figure.append(place);
    }
    place.replaceChildren();
    drawn.set(figure, { plot: new window.uPlot(options, points, place), text, theme, width });
  };
  const all = () => document.querySelectorAll("figure[data-chart]").forEach(draw);
  document.addEventListener("DOMContentLoaded", all);
  document.addEventListener("penstock:theme", all);
  document.addEventListener("penstock:news", all);
  let timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(all, 150); });
})();
