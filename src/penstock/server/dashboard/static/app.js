// Everything that needs the browser: theme, keyboard, palette, dialogs and copying; live.js has the state of the stream.
// No element carries code of its own; the pages are complete without this file, only not live.
(() => {
  "use strict";
  const root = document.documentElement;
  const store = {
    get: (name) => { try { return localStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* not kept */ } },
  };

  // ---- theme: before the first paint
  const kept = store.get("penstock-theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const switchTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store.set("penstock-theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("penstock:theme"));
  };

  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ---- one-time sign-in: the code is in the fragment, which is never sent; it is posted, and forgotten
  const signInOnce = () => {
    const form = $("#sign-in");
    const found = /^#code=([\w-]+)$/.exec(location.hash);
    if (!form || !found) return;
    history.replaceState(null, "", location.pathname);
    form.elements.code.value = found[1];
    form.elements.token.required = false;
    form.submit();
  };

  // ---- messages: one at a time
  let toastTimer;
  const say = (text) => {
    const place = $("#toast");
    if (!place) return;
    const note = document.createElement("div");
    note.className = "toast";
    note.textContent = text;
    place.replaceChildren(note);
    keepToast();
  };
  const keepToast = () => {
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => $$("#toast > *").forEach((note) => { note.hidden = true; }), 8000);
  };

  // ---- a request that got no answer: it is said, and a change is not made twice
  document.addEventListener("htmx:error", (event) => {
    const request = event.detail.ctx?.request;
    if (!request || event.target.id === "stream") return;
    const text = request.method === "GET" ? "The server did not answer. Try again."
      : "The server did not answer, so it is not known whether this was changed: look at the changes before you try again.";
    const place = ($("#dialog[open]") && $("#dialog-problem")) || $("#problem");
    const note = document.createElement("div");
    note.className = "callout problem-note";
    note.dataset.tone = "bad";
    note.textContent = text;
    place?.replaceChildren(note);
  });

  // ---- dialogs: a fragment that arrives in #dialog-body opens it; an outcome closes it
  document.addEventListener("htmx:after:swap", (event) => {
    const body = $("#dialog-body");
    const dialog = $("#dialog");
    if (!body || !dialog) return;
    const done = $("[data-done]", body);
    if (done) {
      const target = done.dataset.go;
      body.replaceChildren();
      if (dialog.open) dialog.close();
      keepToast();
      if (target) location.assign(target);
    } else if (body.firstElementChild && !dialog.open) {
      dialog.showModal();
      $("[autofocus], input:not([type=hidden]), select, button", body)?.focus();
    }
  });

  // ---- a session that ended: one signs in above what one was doing, and goes on with it
  document.addEventListener("htmx:after:swap", () => {
    const again = $("#sign-in-again");
    if (!again) return;
    const done = $("[data-signed-in]", again);
    if (done) {
      document.body.setAttribute("hx-headers:inherited", JSON.stringify({ "X-CSRF-Token": done.dataset.signedIn }));
      done.remove();
      $("#again-token").value = "";
      document.dispatchEvent(new CustomEvent("penstock:signed-in"));
      again.close();
      $("#problem")?.replaceChildren();
      $("#dialog-problem")?.replaceChildren();
      say("You are signed in again. Nothing was changed yet.");
    } else if (!again.open && $("#problem [data-sign-in-again], #dialog-problem [data-sign-in-again]")) {
      again.showModal();
    }
  });

  // ---- somebody else changed the same limit: the dialog goes on from their version, and shows its effect on it
  document.addEventListener("htmx:after:swap", () => {
    const moved = $("#dialog-problem [data-version]");
    const seen = $("#dialog [name=if_version]");
    if (!moved || !seen || seen.value === moved.dataset.version) return;
    seen.value = moved.dataset.version;
    $("#dialog :is(input[hx-trigger*=again], select[hx-trigger*=again])")?.dispatchEvent(new CustomEvent("again"));
  });

  // ---- rows: j and k move, Enter opens, y asks why, x selects
  const rows = () => $$("main table.cards tbody tr").filter((row) => $("a[href]", row) && row.offsetParent !== null);
  let atKey = null;
  const keyOf = (row) => row.id || $("a[href]", row)?.getAttribute("href");
  const mark = (row) => {
    $$("tr[data-at]").forEach((each) => each.removeAttribute("data-at"));
    if (!row) return;
    row.setAttribute("data-at", "");
    atKey = keyOf(row);
    row.scrollIntoView({ block: "nearest" });
  };
  const restoreRow = () => {
    if (atKey && !$("tr[data-at]")) {
      const row = rows().find((each) => keyOf(each) === atKey);
      if (row) row.setAttribute("data-at", "");
    }
  };
  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.hasAttribute("data-at"));
    mark(all[Math.max(0, Math.min(all.length - 1, at + step))]);
  };

  // ---- palette
  // What can be done to the row that is marked, to the rows that are selected, and on this page.
  const actsHere = () => {
    const row = $("tr[data-at]");
    const places = [[$("a[href]", row ?? document.createElement("i"))?.textContent ?? "", row], ["selected", $("#bulk:not([hidden])")], ["this page", $("main .head .acts")]];
    return places.flatMap(([where, place]) => $$("button, a.btn", place ?? document.createElement("i"))
      .filter((each) => each.getAttribute("aria-disabled") !== "true" && each.offsetParent !== null)
      .map((control) => ({ control, where, label: control.getAttribute("aria-label") ?? control.textContent.trim() })));
  };
  const showActs = () => {
    const list = $("#acts-here");
    if (!list) return;
    const text = $("#palette input").value.trim().toLowerCase();
    list.replaceChildren(...actsHere().filter((act) => act.label.toLowerCase().includes(text)).slice(0, 8).map(({ control, where, label }) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const note = document.createElement("span");
      button.type = "button";
      button.append(label, note);
      note.textContent = where;
      button.addEventListener("click", () => { $("#palette").close(); control.click(); });
      item.append(button);
      return item;
    }));
    list.hidden = !list.children.length;
  };
  const openPalette = () => {
    const palette = $("#palette");
    if (!palette || palette.open) return;
    palette.showModal();
    showActs();
    palette.dispatchEvent(new CustomEvent("open"));
    $("input", palette).select();
  };
  const found = () => $$("#acts-here button, #found a[href]");
  const moveFound = (step) => {
    const all = found();
    if (!all.length) return;
    const at = all.findIndex((each) => each.hasAttribute("data-at"));
    all.forEach((each) => each.removeAttribute("data-at"));
    const next = all[(at + step + all.length) % all.length];
    next.setAttribute("data-at", "");
    next.scrollIntoView({ block: "nearest" });
  };

  let leader = false;
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
  const onKey = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return openPalette();
    }
    if ($("#palette")?.open) {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        moveFound(event.key === "ArrowDown" ? 1 : -1);
      } else if (event.key === "Enter") {
        event.preventDefault();
        (found().find((each) => each.hasAttribute("data-at")) ?? found()[0])?.click();
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || $("dialog[open]")) return;
    if (leader) {
      leader = false;
      const link = $(`.nav a[data-keys="g ${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); return link.click(); }
    }
    const here = $("tr[data-at]");
    switch (event.key) {
      case "g": leader = true; break;
      case "/": event.preventDefault(); ($("main [data-filter]") ?? $("[data-palette-open]"))?.focus(); break;
      case "?": event.preventDefault(); $("#help")?.showModal(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": if (here) $("input[type=checkbox]", here)?.click(); break;
      case "y": (here ? $("a[data-why]", here) : $("main a[data-why]"))?.click(); break;
      case "Enter": if (here && event.target === document.body) $("a[href]", here)?.click(); break;
      case "Escape": if (here) { here.removeAttribute("data-at"); atKey = null; } else history.back(); break;
      default: break;
    }
  };

  // ---- filter of the rows that are on the page
  const filterRows = (input) => {
    const text = input.value.trim().toLowerCase();
    const table = input.closest(".panel")?.querySelector("table.cards") ?? $("main table.cards");
    $$("tbody tr", table ?? document).forEach((row) => {
      row.hidden = Boolean(text) && !row.textContent.toLowerCase().includes(text);
    });
  };

  // ---- what is pressed before the page can act on it is done as soon as it can, and not lost
  let isReady = false;
  let pressed = null;
  const keep = (event) => {
    const control = event.target.closest?.(event.type === "submit" ? "form[hx-post], form[hx-get]" : "button[hx-get], button[hx-post], a[hx-get]");
    if (isReady || !control) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    pressed = () => { if (event.type === "submit") control.requestSubmit(event.submitter); else control.click(); };
  };
  document.addEventListener("click", keep, true);
  document.addEventListener("submit", keep, true);
  document.addEventListener("htmx:after:process", (event) => {
    if (event.target !== document.body) return;
    isReady = true;
    pressed?.();
    pressed = null;
  });
  const keys = [];
  document.addEventListener("keydown", (event) => {
    if (document.readyState === "loading") keys.push(event);
    else onKey(event);
  });
  document.addEventListener("readystatechange", () => keys.splice(0).forEach(onKey));
  document.addEventListener("penstock:news", restoreRow);

  document.addEventListener("DOMContentLoaded", () => {
    signInOnce();
    $(".nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
    // A dialog that was closed is emptied: what is left in it would open it again at the next push.
    $("#dialog")?.addEventListener("close", () => $("#dialog-body").replaceChildren());
    document.addEventListener("click", (event) => {
      const target = event.target;
      if (target.closest("[data-theme-switch]")) return switchTheme();
      if (target.closest("[data-palette-open]")) return openPalette();
      if (target.closest("[data-help-open]")) return $("#help")?.showModal();
      if (target.closest("[data-dialog-close]")) return target.closest("dialog")?.close();
      if (target.closest("[aria-disabled=true]")) return event.preventDefault();
      if (target.closest("[data-sign-in-again]") && $("#sign-in-again")) {
        event.preventDefault();
        return $("#sign-in-again").open || $("#sign-in-again").showModal();
      }
      const copied = target.closest("[data-copy]");
      if (copied) navigator.clipboard?.writeText(copied.dataset.copy).then(() => say("Copied"), () => say("The browser does not allow copying"));
      if (target instanceof HTMLDialogElement) target.close(); // the backdrop
      const menu = $("details.ns[open]");
      if (menu && !menu.contains(target)) menu.open = false;
    });
    document.addEventListener("input", (event) => {
      if (event.target.closest?.("#palette")) showActs();
      if (event.target.matches?.("[data-filter]")) filterRows(event.target);
    });
    document.addEventListener("penstock:news", () => $$("[data-filter]").forEach((each) => { if (each.value) filterRows(each); }));
  });
})();
