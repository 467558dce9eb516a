// The list of runs: selecting rows, and putting a suggestion into the query box.
(() => {
  "use strict";
  const $ = (selector) => document.querySelector(selector);
  const boxes = () => [...document.querySelectorAll("input[data-run]")];
  const count = () => {
    const bulk = $("#bulk");
    if (!bulk) return;
    const chosen = boxes().filter((box) => box.checked);
    bulk.hidden = !chosen.length;
    $("#selected-count").textContent = `${chosen.length} selected`;
    $("#selected-ids").value = JSON.stringify(chosen.map((box) => box.dataset.run));
    for (const box of boxes()) box.closest("tr").toggleAttribute("data-focus", box.checked);
    const all = $("[data-select-all]");
    all.checked = chosen.length > 0 && chosen.length === boxes().length;
    all.indeterminate = chosen.length > 0 && !all.checked;
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("[data-column]")) {
      const form = event.target.form;
      form.elements.columns.value = [...form.querySelectorAll("[data-column]")].filter((box) => box.checked).map((box) => box.dataset.column).join(",");
      return;
    }
    count();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-select-none]")) {
      for (const box of boxes()) box.checked = false;
      count();
    }
    const suggested = event.target.closest("[data-complete]");
    if (suggested) {
      const query = $("#query");
      // A suggestion for what stood there before the last key would undo that key.
      if ($("#suggest").dataset.for !== query.value) return query.focus();
      query.value = suggested.dataset.complete;
      query.focus();
      query.setSelectionRange(query.value.length, query.value.length);
      query.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });
  count(); // a browser that goes back restores what was checked
})();
