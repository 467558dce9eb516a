// The API of this server as a page: everything shown is read from /openapi.json, everything typed stays in memory.
// Text from the document or from an answer only ever becomes a text node.

const METHODS = ["get", "post", "put", "patch", "delete"];
const GROUPS = new Map([
  ["workflows", "Workflows"],
  ["activities", "Activities"],
  ["task-queues", "Task queues"],
  ["workers", "Workers"],
  ["worker", "Worker protocol"],
  ["namespaces", "Namespaces"],
  ["cluster", "This server"],
  ["health", "This server"],
  ["ready", "This server"],
]);
const HEALTH_EVERY_MS = 10_000;
const HEALTH_PATIENCE_MS = 5_000;
const COLOURED_CHARS_MAX = 200_000;
const SHOWN_CHARS_MAX = 1_000_000;
const NESTING_MAX = 4;

const session = { token: "", namespace: null, drafts: new Map() };
const page = { document: null, operations: [], running: null };

const at = (id) => document.getElementById(id);

start();

function start() {
  at("filter").addEventListener("input", showSidebar);
  at("filter").addEventListener("keydown", onFilterKey);
  at("operations").addEventListener("keydown", onListKey);
  at("side-toggle").addEventListener("click", () => openSidebar(!sidebarIsOpen()));
  at("skip").addEventListener("click", skipToMain);
  document.addEventListener("keydown", onPageKey);
  window.addEventListener("hashchange", () => show({ moveFocus: true }));
  document.addEventListener("visibilitychange", () => document.hidden || askHealth());
  setInterval(() => document.hidden || askHealth(), HEALTH_EVERY_MS);
  askHealth();
  load();
}

// ---------------------------------------------------------------- the document

async function load() {
  try {
    const answer = await fetch("/openapi.json", { credentials: "omit" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status} for /openapi.json.`);
    page.document = await answer.json();
  } catch (error) {
    showLoadFailure(error);
    return;
  }
  page.operations = readOperations(page.document);
  at("version").textContent = page.document.info?.version ?? "";
  showSidebar();
  show({ moveFocus: false });
}

function readOperations(description) {
  const operations = [];
  for (const [path, item] of Object.entries(description.paths ?? {})) {
    for (const method of METHODS.filter((name) => name in item)) {
      operations.push(readOperation(description, path, method, item[method]));
    }
  }
  return operations;
}

function readOperation(description, path, method, raw) {
  const tag = raw.tags?.[0] ?? "other";
  return {
    id: raw.operationId ?? `${method} ${path}`,
    method: method.toUpperCase(),
    path,
    summary: raw.summary ?? "",
    description: raw.description ?? "",
    group: GROUPS.get(tag) ?? sentenceCase(tag),
    open: (raw.security ?? description.security ?? []).length === 0,
    roles: raw["x-roles"] ?? [],
    parameters: (raw.parameters ?? []).map(resolve),
    body: raw.requestBody?.content?.["application/json"]?.schema ?? null,
    responses: Object.entries(raw.responses ?? {}),
  };
}

function grouped(operations) {
  const groups = new Map([...new Set(GROUPS.values())].map((title) => [title, []]));
  for (const operation of operations) {
    if (!groups.has(operation.group)) groups.set(operation.group, []);
    groups.get(operation.group).push(operation);
  }
  for (const members of groups.values()) members.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
  return [...groups].filter(([, members]) => members.length > 0);
}

// ---------------------------------------------------------------- reading schemas

/** Follow references inside the document; keywords beside a reference win over what it points to. */
function resolve(node) {
  let found = node ?? {};
  for (let hops = 0; found.$ref?.startsWith("#/") && hops < 20; hops += 1) {
    const { $ref, ...beside } = found;
    const steps = $ref.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
    found = { ...steps.reduce((value, step) => value?.[step], page.document), ...beside };
  }
  return found;
}

/** The schema without its null branch, and whether null was among the choices. */
function unwrap(schema) {
  const plain = resolve(schema);
  const branches = plain.anyOf ?? plain.oneOf;
  if (!branches) return { schema: plain, nullable: false };
  const { anyOf, oneOf, ...beside } = plain;
  const kept = branches.map(resolve).filter((branch) => branch.type !== "null");
  const nullable = kept.length < branches.length;
  if (kept.length === 1) return { schema: { ...beside, ...kept[0] }, nullable };
  return { schema: { ...beside, choices: kept }, nullable };
}

function typeName(schema) {
  const { schema: plain, nullable } = unwrap(schema);
  return nullable ? `${bareTypeName(plain)} or null` : bareTypeName(plain);
}

function bareTypeName(plain) {
  if (plain.choices) return plain.choices.map(typeName).join(" or ");
  if (plain.enum) return [...new Set(plain.enum.map((value) => (value === null ? "null" : typeof value)))].join(" or ");
  if (Array.isArray(plain.type)) return plain.type.join(" or ");
  if (plain.type === "array") return plain.items ? `list of ${typeName(plain.items)}` : "list";
  if (plain.type === "object" && plain.additionalProperties?.type) {
    return `map to ${typeName(plain.additionalProperties)}`;
  }
  if (plain.type === "object") return plain.title ?? "object";
  return plain.type ?? "any JSON";
}

/** What a value must satisfy, as short phrases; code-like ones are marked so. */
function bounds(schema) {
  const { schema: plain } = unwrap(schema);
  if (plain.choices) return plain.choices.flatMap(bounds);
  const phrases = [];
  const values = plain.enum ?? (plain.const === undefined ? [] : [plain.const]);
  if (values.length) phrases.push(oneOf(values.filter((value) => value !== null)));
  const low = plain.minimum ?? plain.exclusiveMinimum;
  const high = plain.maximum ?? plain.exclusiveMaximum;
  if (low !== undefined && high !== undefined && plain.exclusiveMinimum === undefined
      && plain.exclusiveMaximum === undefined) {
    phrases.push(text(`${number(low)} to ${number(high)}`));
  } else {
    const lowWords = plain.minimum === undefined ? "more than" : "at least";
    const highWords = plain.maximum === undefined ? "less than" : "at most";
    if (low !== undefined) phrases.push(text(`${lowWords} ${number(low)}`));
    if (high !== undefined) phrases.push(text(`${highWords} ${number(high)}`));
  }
  phrases.push(...extent(plain.minLength, plain.maxLength, "character"));
  phrases.push(...extent(plain.minItems, plain.maxItems, "item"));
  if (plain.pattern) phrases.push(patternPhrase(plain.pattern));
  if (plain.format) phrases.push(text(plain.format));
  if (plain.items) phrases.push(...eachItem(plain.items));
  return phrases;
}

function oneOf(values) {
  const last = values.length - 1;
  const joint = (index) => (index === 0 ? "" : index === last ? " or " : ", ");
  return make("span", {}, ...values.flatMap((value, index) => [joint(index), code(JSON.stringify(value))]));
}

function eachItem(items) {
  const inner = bounds(items);
  return inner.length && !fieldsOf(items) ? [make("span", {}, "each: ", ...separated(inner))] : [];
}

function extent(least, most, noun) {
  const plural = (count) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
  if (least && most !== undefined) return [text(least === most ? plural(most) : `${number(least)} to ${plural(most)}`)];
  if (most !== undefined) return [text(`at most ${plural(most)}`)];
  return least ? [text(`at least ${plural(least)}`)] : [];
}

function patternPhrase(pattern) {
  const inner = pattern.replace(/^(\\A|\^)/, "").replace(/(\\Z|\\z|\$)$/, "");
  if (inner.startsWith("[^\\x00-\\x1f")) return text("no control characters");
  return inner === "[^\\x00]*" ? text("no NUL character") : code(inner);
}

function number(value) {
  return value === Number.MAX_SAFE_INTEGER ? "2⁵³ − 1" : value.toLocaleString("en", { maximumFractionDigits: 6 });
}

/** The fields of an object, or of the objects in a list; null where there are none to show. */
function fieldsOf(schema) {
  const { schema: plain } = unwrap(schema);
  if (plain.type === "array" && plain.items) return fieldsOf(plain.items);
  if (!plain.properties) return null;
  const required = new Set(plain.required ?? []);
  return Object.entries(plain.properties)
    .map(([name, field]) => ({ name, schema: field, required: required.has(name) }))
    .sort((a, b) => Number(b.required) - Number(a.required));
}

// ---------------------------------------------------------------- examples

/** A value that the schema accepts: only what is required, or every field. */
function example(schema, every, name = "value", depth = 0) {
  const { schema: plain } = unwrap(schema);
  if (plain.choices) return example(plain.choices[0], every, name, depth);
  if (plain.const !== undefined) return plain.const;
  if (plain.enum) return plain.enum.find((value) => value !== null) ?? null;
  if (plain.default !== undefined && plain.default !== null) return plain.default;
  switch (Array.isArray(plain.type) ? plain.type[0] : plain.type) {
    case "string": return exampleText(plain, name);
    case "integer": return exampleNumber(plain, 1);
    case "number": return exampleNumber(plain, 1);
    case "boolean": return true;
    case "array": return plain.minItems || (every && fieldsOf(plain.items ?? {}))
      ? [example(plain.items ?? {}, every, name.replace(/s$/, ""), depth + 1)] : [];
    case "object": return exampleObject(plain, every, depth);
    default: return null;
  }
}

function exampleObject(plain, every, depth) {
  const fields = depth < NESTING_MAX ? fieldsOf(plain) ?? [] : [];
  return Object.fromEntries(fields.filter((field) => every || field.required)
    .map((field) => [field.name, example(field.schema, every, field.name, depth + 1)]));
}

function exampleText(plain, name) {
  const words = name.replaceAll("_", "-");
  const value = words.endsWith("-id") ? `${words.slice(0, -3)}-1` : `my-${words}`;
  return value.slice(0, plain.maxLength ?? value.length).padEnd(plain.minLength ?? 0, "x");
}

function exampleNumber(plain, wish) {
  const step = plain.type === "integer" ? 1 : 0.1;
  const low = plain.minimum ?? (plain.exclusiveMinimum === undefined ? wish : plain.exclusiveMinimum + step);
  const high = plain.maximum ?? (plain.exclusiveMaximum === undefined ? wish : plain.exclusiveMaximum - step);
  return Math.min(Math.max(wish, low), Math.max(low, high));
}

// ---------------------------------------------------------------- requests

/** What the reader has filled in for an operation; kept while the page is open. */
function draftOf(operation) {
  let draft = session.drafts.get(operation.id);
  if (!draft) {
    const body = operation.body ? JSON.stringify(example(operation.body, false), null, 2) : null;
    draft = { values: new Map(), body };
    for (const parameter of operation.parameters) draft.values.set(keyOf(parameter), initialValue(parameter));
    session.drafts.set(operation.id, draft);
  }
  return draft;
}

function initialValue(parameter) {
  const { schema } = unwrap(parameter.schema ?? {});
  if (parameter.in === "header" && parameter.required) return String(schema.default ?? schema.enum?.[0] ?? "");
  return "";
}

const keyOf = (parameter) => `${parameter.in}:${parameter.name}`;
const isNamespace = (parameter) => parameter.in === "header" && parameter.name.toLowerCase() === "x-namespace";

function valueOf(operation, parameter) {
  if (isNamespace(parameter)) return session.namespace ?? String(parameter.schema?.default ?? "");
  return draftOf(operation).values.get(keyOf(parameter)) ?? "";
}

/** The path as it would be sent. `blank` says what stands for a path parameter not filled in yet. */
function target(operation, blank) {
  const path = operation.parameters.filter((each) => each.in === "path").reduce(
    (soFar, each) => soFar.replace(
      `{${each.name}}`, () => encodeURIComponent(valueOf(operation, each) || blank(each))),
    operation.path,
  );
  const query = new URLSearchParams();
  for (const each of operation.parameters.filter((candidate) => candidate.in === "query")) {
    const value = valueOf(operation, each);
    if (value !== "") query.set(each.name, value);
  }
  return String(query) ? `${path}?${query}` : path;
}

function headersOf(operation, token) {
  const headers = operation.open || token === "" ? [] : [["Authorization", `Bearer ${token}`]];
  for (const each of operation.parameters.filter((candidate) => candidate.in === "header")) {
    const value = valueOf(operation, each);
    if (value !== "") headers.push([each.name, value]);
  }
  if (operation.body) headers.push(["Content-Type", "application/json"]);
  return headers;
}

function curl(operation) {
  const verb = operation.method === "GET" ? "curl" : `curl -X ${operation.method}`;
  const address = location.origin + target(operation, (each) => exampleText(each.schema ?? {}, each.name));
  const lines = [`${verb} ${shellQuoted(address)}`];
  for (const [name, value] of headersOf(operation, "$TOKEN")) {
    lines.push(name === "Authorization" ? `-H "${name}: ${value}"` : `-H ${shellQuoted(`${name}: ${value}`)}`);
  }
  if (operation.body) lines.push(`-d ${shellQuoted(draftOf(operation).body)}`);
  return lines.join(" \\\n  ");
}

const shellQuoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;

/** Why the request cannot be sent as filled in, with the field to blame; null where it can. */
function obstacle(operation) {
  for (const each of operation.parameters) {
    const value = valueOf(operation, each);
    if (each.required && value === "") return { key: keyOf(each), message: `Fill in ${each.name}.` };
    if (each.in === "path" && /^\.{1,2}$/.test(value)) {
      return { key: keyOf(each), message: `A browser cannot send "${value}" as a part of a path.` };
    }
    if (each.in === "header" && !fitsHeader(value)) {
      return { key: keyOf(each), message: `A browser cannot send these characters in ${each.name}.` };
    }
  }
  if (!operation.open && !fitsHeader(session.token)) {
    return { key: "token", message: "A browser cannot send these characters in a token." };
  }
  return operation.body ? bodyObstacle(draftOf(operation).body) : null;
}

function bodyObstacle(body) {
  try {
    JSON.parse(body);
    return null;
  } catch (error) {
    return { key: "body", message: `The body is not JSON yet: ${error.message}` };
  }
}

const fitsHeader = (value) => /^[\x20-\x7e\xa0-\xff]*$/.test(value);

async function send(operation, signal) {
  const began = performance.now();
  const answer = await fetch(target(operation, () => ""), {
    method: operation.method,
    headers: headersOf(operation, session.token),
    body: operation.body ? draftOf(operation).body : undefined,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    signal,
  });
  const raw = await answer.text();
  return { answer, raw, tookMs: Math.round(performance.now() - began) };
}

// ---------------------------------------------------------------- health

async function askHealth() {
  try {
    const answer = await fetch("/api/health", {
      credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(HEALTH_PATIENCE_MS),
    });
    const body = await answer.json();
    if (answer.ok && body.status === "serving") showHealth("serving", "Serving");
    else showHealth("degraded", `Degraded: ${body.reason ?? body.status ?? answer.status}`);
  } catch {
    showHealth("gone", "No answer from the server");
  }
}

function showHealth(state, words) {
  at("status").dataset.state = state;
  if (at("status-text").textContent !== words) at("status-text").textContent = words;
}

// ---------------------------------------------------------------- sidebar

function showSidebar() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = page.operations.filter((operation) => words.every((word) => searchable(operation).includes(word)));
  const groups = grouped(kept).map(([title, members], index) =>
    make("section", { "aria-labelledby": `group-${index}` },
      make("h2", { id: `group-${index}` }, title, make("span", { class: "count" }, String(members.length))),
      make("ul", {}, ...members.map((operation) => make("li", {}, sidebarLink(operation))))));
  const filtering = words.length > 0;
  at("operations").replaceChildren(...(kept.length ? groups : [nothingMatches()]));
  at("filter-count").textContent = filtering ? `${kept.length} of ${page.operations.length} operations` : "";
  if (filtering) openSidebar(true);
  markCurrent();
}

const searchable = (operation) =>
  [operation.method, operation.path, operation.summary, operation.id, operation.group, ...operation.roles]
    .join(" ").toLowerCase();

function nothingMatches() {
  if (!page.document) return make("p", { class: "empty" }, "No operations yet.");
  const clear = make("button", { type: "button", class: "quiet" }, "Clear the filter");
  clear.addEventListener("click", () => {
    at("filter").value = "";
    showSidebar();
    at("filter").focus();
  });
  return make("div", { class: "empty" }, make("p", {}, `No operation matches “${at("filter").value.trim()}”.`), clear);
}

function sidebarLink(operation) {
  return make("a", { href: linkTo(operation), "data-id": operation.id, title: `${operation.method} ${operation.path}` },
    badge(operation.method), make("span", { class: "side-name" }, withoutStop(operation.summary)));
}

function markCurrent() {
  const id = currentId();
  for (const link of at("operations").querySelectorAll("a")) {
    if (link.dataset.id === id) {
      link.setAttribute("aria-current", "page");
      keepInSight(link);
    } else link.removeAttribute("aria-current");
  }
}

function keepInSight(link) {
  const list = at("operations");
  const outer = list.getBoundingClientRect();
  const inner = link.getBoundingClientRect();
  if (inner.top < outer.top || inner.bottom > outer.bottom) list.scrollTop += inner.top - outer.top - outer.height / 3;
}

const sidebarIsOpen = () => at("side").classList.contains("open");

function openSidebar(open) {
  at("side").classList.toggle("open", open);
  at("side-toggle").setAttribute("aria-expanded", String(open));
}

function onPageKey(event) {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    at("filter").focus();
    at("filter").select();
  }
}

function onFilterKey(event) {
  const first = at("operations").querySelector("a");
  if (event.key === "Escape" && at("filter").value) {
    event.preventDefault();
    at("filter").value = "";
    showSidebar();
  } else if (event.key === "ArrowDown" && first) {
    event.preventDefault();
    first.focus();
  } else if (event.key === "Enter" && first) first.click();
}

function onListKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const links = [...at("operations").querySelectorAll("a")];
  const here = links.indexOf(document.activeElement);
  if (here === -1) return;
  event.preventDefault();
  (links[here + step] ?? (step < 0 ? at("filter") : links[here])).focus();
}

// ---------------------------------------------------------------- pages

const linkTo = (operation) => `#/${encodeURIComponent(operation.id)}`;

function currentId() {
  try {
    return decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  } catch {
    return location.hash;
  }
}

function skipToMain(event) {
  event.preventDefault();
  at("main").focus();
}

function show({ moveFocus }) {
  if (!page.document) return;
  page.running?.abort();
  const id = currentId();
  const operation = page.operations.find((each) => each.id === id);
  const content = operation ? operationPage(operation) : id ? missingPage(id) : overviewPage();
  at("main").replaceChildren(content);
  document.title = operation ? `${withoutStop(operation.summary)} · Penstock API` : "Penstock API";
  openSidebar(false);
  markCurrent();
  window.scrollTo(0, 0);
  if (moveFocus) at("main").querySelector("h1").focus({ preventScroll: true });
}

function showLoadFailure(error) {
  const again = make("button", { type: "button", class: "primary" }, "Try again");
  again.addEventListener("click", () => {
    again.disabled = true;
    askHealth();
    load();
  });
  showSidebar();
  at("main").replaceChildren(make("section", { class: "blank", role: "alert" },
    make("h1", { tabindex: "-1" }, "The description did not arrive"),
    make("p", {}, "Is the server still running, and can this browser reach it?"),
    make("p", { class: "faint" }, String(error.message ?? error)),
    again));
}

function missingPage(id) {
  return make("section", { class: "blank" },
    make("h1", { tabindex: "-1" }, "No such operation"),
    make("p", {}, "This server has no operation named ", code(id), "."),
    make("p", {}, make("a", { href: "#/" }, "See all operations")));
}

function overviewPage() {
  const groups = grouped(page.operations).map(([title, members]) => make("section", { class: "group" },
    make("h2", {}, title),
    make("ul", { class: "rows" }, ...members.map((operation) => make("li", {}, overviewRow(operation))))));
  return make("article", { class: "overview" },
    make("h1", { tabindex: "-1" }, "The API of this server"),
    make("p", { class: "lead" }, ...prose(page.document.info?.description ?? "")),
    make("div", { class: "cards" }, ...conventionCards()),
    ...groups);
}

function conventionCards() {
  return [
    card("Say who you are", "Send your token with every request but the open ones. Its role decides what it opens.",
      code("Authorization: Bearer $TOKEN")),
    card("Say which version you speak", "Operations that need a version name its header.",
      ...versionHeaders().map((header) => code(header))),
    card("Say where", "Work lives in a namespace. Without the header, it is the server's default one.",
      code("X-Namespace: default")),
    card("Read refusals by reason", "Every refusal is JSON: branch on its reason, show its message.",
      code('{"reason": "…", "message": "…"}')),
  ];
}

function versionHeaders() {
  const required = page.operations.flatMap((operation) => operation.parameters)
    .filter((each) => each.in === "header" && each.required);
  return [...new Set(required.map((each) => `${each.name}: ${initialValue(each)}`))].sort();
}

const card = (title, words, ...lines) => make("section", { class: "card" },
  make("h2", {}, title), make("p", {}, words), ...lines.map((line) => make("p", { class: "line" }, line)));

function overviewRow(operation) {
  return make("a", { href: linkTo(operation) },
    badge(operation.method), pathText(operation.path), make("span", { class: "row-summary" }, operation.summary));
}

function operationPage(operation) {
  const command = commandPanel(operation);
  return make("article", { class: "operation" },
    make("header", { class: "operation-head" },
      make("p", { class: "crumb" }, operation.group),
      make("h1", { tabindex: "-1" }, withoutStop(operation.summary)),
      make("p", { class: "address" }, badge(operation.method), pathText(operation.path)),
      ...(operation.description ? [make("p", {}, ...prose(operation.description))] : []),
      rolesLine(operation)),
    make("div", { class: "reading" },
      parametersSection(operation),
      ...(operation.body ? [bodySection(operation)] : []),
      responsesSection(operation)),
    make("div", { class: "doing" }, command.panel, tryPanel(operation, command.refresh)));
}

function rolesLine(operation) {
  if (operation.open) return make("p", { class: "roles" }, "Open to everyone: needs no token.");
  const roles = operation.roles.map((role) => make("span", { class: "role" }, role));
  return make("p", { class: "roles" }, roles.length > 1 ? "Open to the roles " : "Open to the role ", ...roles);
}

function parametersSection(operation) {
  if (!operation.parameters.length) return section("Parameters", make("p", { class: "faint" }, "It takes none."));
  const rows = operation.parameters.map((each) => fieldRow({
    name: each.name, schema: each.schema ?? {}, required: each.required, place: each.in, about: each.description,
  }, 0));
  return section("Parameters", fieldTable("Parameters", rows, true));
}

function bodySection(operation) {
  const { schema: plain } = unwrap(operation.body);
  const rows = fieldRows(operation.body, 0, []);
  return section("Request body",
    ...(plain.description ? [make("p", { class: "faint" }, ...prose(plain.description))] : []),
    rows.length ? fieldTable("Fields of the request body", rows, false)
      : make("p", { class: "faint" }, `${sentenceCase(typeName(operation.body))}, with no fixed fields.`));
}

function fieldRows(schema, depth, seen) {
  const { schema: plain } = unwrap(schema);
  const rows = [];
  for (const field of fieldsOf(schema) ?? []) {
    rows.push(fieldRow(field, depth));
    const inner = unwrap(field.schema).schema;
    const title = inner.title ?? inner.items?.$ref;
    if (depth < NESTING_MAX && fieldsOf(field.schema) && !seen.includes(title)) {
      rows.push(...fieldRows(field.schema, depth + 1, [...seen, plain.title, title]));
    }
  }
  return rows;
}

function fieldRow(field, depth) {
  const schema = resolve(field.schema);
  const about = field.about ?? (depth === 0 || schema.type !== "object" ? schema.description : null);
  const fallback = schema.default;
  const hasDefault = fallback !== undefined && fallback !== null;
  const phrases = bounds(field.schema);
  if (hasDefault) phrases.push(make("span", {}, "default ", code(JSON.stringify(fallback))));
  return make("tr", { "data-depth": String(depth), role: "row" },
    make("th", { scope: "row", role: "rowheader" },
      make("code", { class: "field-name" }, ...breakable(field.name)),
      ...(field.required ? [make("span", { class: "required" }, "required")] : [])),
    ...(field.place ? [make("td", { class: "place", role: "cell" }, field.place)] : []),
    make("td", { class: "type", role: "cell" }, typeName(field.schema)),
    make("td", { class: "bounds", role: "cell" },
      ...(about ? [make("span", { class: "about" }, ...prose(about))] : []),
      ...separated(phrases)));
}

/** Roles are spelled out because the stacked layout of narrow screens would lose them. */
function fieldTable(caption, rows, placed) {
  const heads = ["Name", ...(placed ? ["In"] : []), "Type", "Must be"];
  return make("table", { class: placed ? "fields placed" : "fields", role: "table" },
    make("caption", { class: "visually-hidden" }, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" },
      ...heads.map((head) => make("th", { scope: "col", role: "columnheader" }, head)))),
    make("tbody", { role: "rowgroup" }, ...rows));
}

function responsesSection(operation) {
  const ordered = [...operation.responses].sort(([a], [b]) => (a < b ? -1 : 1));
  const rows = ordered.map(([status, response]) => make("tr", {},
    make("th", { scope: "row" }, statusBadge(status)),
    make("td", {}, responseMeaning(operation, status, response))));
  const problem = ordered.filter(([status]) => status >= "400")
    .map(([, response]) => resolve(response).content?.["application/json"]?.schema).find(Boolean);
  return section("Responses",
    make("table", { class: "responses" },
      make("caption", { class: "visually-hidden" }, "Responses"),
      make("thead", { class: "visually-hidden" },
        make("tr", {}, make("th", { scope: "col" }, "Status"), make("th", { scope: "col" }, "Meaning"))),
      make("tbody", {}, ...rows)),
    ...(problem && fieldsOf(problem) ? [problemShape(problem)] : []));
}

function responseMeaning(operation, status, response) {
  const { description, content } = resolve(response);
  const schema = content?.["application/json"]?.schema;
  const words = description && description !== operation.summary ? `${withoutStop(description)}.` : "Done.";
  const rows = status < "400" && schema ? fieldRows(schema, 0, []) : [];
  if (!rows.length) return make("span", {}, words);
  return make("details", {}, make("summary", {}, words), fieldTable(`Fields of the ${status} answer`, rows, false));
}

function problemShape(schema) {
  return make("details", { class: "problem" },
    make("summary", {}, "The shape of a refusal"),
    make("p", { class: "faint" }, ...prose(resolve(schema).description ?? "")),
    fieldTable("Fields of a refusal", fieldRows(schema, 0, []), false));
}

// ---------------------------------------------------------------- the command

function commandPanel(operation) {
  const output = make("code", {});
  const block = make("pre", { class: "command", tabindex: "0", role: "region", "aria-label": "curl command" }, output);
  const refresh = () => output.replaceChildren(...colouredCommand(curl(operation)));
  refresh();
  const panel = make("section", { class: "panel" },
    make("div", { class: "panel-head" }, make("h2", {}, "curl"), copyButton(block, () => curl(operation))), block);
  return { panel, refresh };
}

/** Quoted words and $TOKEN stand out; the text itself stays exactly the command. */
function colouredCommand(command) {
  return command.split(/('(?:[^']|'\\'')*'|"[^"]*")/).map((part, index) =>
    (index % 2 ? make("span", { class: part.startsWith('"') ? "tok-key" : "tok-string" }, part) : text(part)));
}

function copyButton(block, read) {
  const button = make("button", { type: "button", class: "quiet", "aria-live": "polite" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(block, read())) ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2_000);
  });
  return button;
}

/** Browsers give the clipboard to secure origins only; elsewhere the text is selected and copied the old way. */
async function copied(block, words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    getSelection().selectAllChildren(block);
    return document.execCommand("copy");
  }
}

// ---------------------------------------------------------------- try it

function tryPanel(operation, refresh) {
  const outcome = outcomeArea();
  const submit = make("button", { type: "submit", class: "primary" }, `Send ${operation.method}`);
  const stop = make("button", { type: "button", class: "quiet", hidden: "" }, "Stop waiting");
  const form = make("form", { novalidate: "", autocomplete: "off" },
    ...(operation.open ? [] : [tokenField()]),
    ...operation.parameters.filter(hasAChoice).map((each) => parameterField(operation, each, refresh)),
    ...(operation.body ? [bodyField(operation, refresh)] : []),
    make("div", { class: "actions" }, submit, stop,
      ...(operation.body ? [make("span", { class: "faint hint-key" }, "or Ctrl+Enter in the body")] : [])));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit.disabled) run(operation, { form, submit, stop, outcome });
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return make("section", { class: "panel", "aria-labelledby": "try" },
    make("div", { class: "panel-head" }, make("h2", { id: "try" }, "Try it"),
      ...(operation.method === "GET" ? [] : [make("span", { class: "faint" }, "Sends a real request to this server")])),
    form, outcome.area);
}

/** Where the answer goes: its head is read aloud by screen readers, its body only on demand. */
function outcomeArea() {
  const head = make("div", { role: "status" });
  const body = make("div");
  const area = make("div", { class: "outcome" }, head, body);
  const say = (spoken, shown = []) => {
    area.classList.add("said");
    head.replaceChildren(...spoken);
    body.replaceChildren(...shown);
    area.scrollIntoView({ block: "nearest" });
  };
  return { area, say };
}

function tokenField() {
  const input = make("input", { type: "password", autocomplete: "off", spellcheck: "false", "data-key": "token" });
  input.value = session.token;
  input.addEventListener("input", () => { session.token = input.value.trim(); });
  return labelled("Bearer token", input, "Kept in this page's memory only, and forgotten when you reload.");
}

function parameterField(operation, parameter, refresh) {
  const { schema } = unwrap(parameter.schema ?? {});
  const input = schema.enum ? choice(schema.enum, parameter.required) : make("input", {
    type: "text", autocomplete: "off", spellcheck: "false",
    placeholder: parameter.required ? exampleText(schema, parameter.name) : String(schema.default ?? ""),
  });
  input.dataset.key = keyOf(parameter);
  input.value = valueOf(operation, parameter);
  if (parameter.required) input.setAttribute("aria-required", "true");
  input.addEventListener("input", () => {
    if (isNamespace(parameter)) session.namespace = input.value;
    else draftOf(operation).values.set(keyOf(parameter), input.value);
    refresh();
  });
  const label = isNamespace(parameter) ? "Namespace" : parameter.name;
  return labelled(label, input, null, parameter.required ? null : "optional");
}

/** A required parameter with one possible value is sent as it is, without asking. */
const hasAChoice = (parameter) => !(parameter.required && unwrap(parameter.schema ?? {}).schema.enum?.length === 1);

function choice(values, required) {
  const blank = required ? [] : [make("option", { value: "" }, "any")];
  return make("select", {}, ...blank, ...values.map((value) => make("option", { value: String(value) }, String(value))));
}

function bodyField(operation, refresh) {
  const draft = draftOf(operation);
  const input = make("textarea", { spellcheck: "false", autocomplete: "off", "data-key": "body", wrap: "off" });
  const write = (words) => {
    input.value = words;
    draft.body = words;
    input.rows = Math.min(Math.max(words.split("\n").length + 1, 4), 18);
    refresh();
  };
  write(draft.body);
  input.addEventListener("input", () => {
    draft.body = input.value;
    refresh();
  });
  const fill = (words, every) => {
    const button = make("button", { type: "button", class: "quiet" }, words);
    button.addEventListener("click", () => write(JSON.stringify(example(operation.body, every), null, 2)));
    return button;
  };
  const field = labelled("JSON body", input);
  field.append(make("div", { class: "fills" },
    make("span", { class: "faint" }, "Fill with"), fill("required fields", false), fill("every field", true)));
  return field;
}

let fieldsMade = 0;

function labelled(words, input, hint = null, mark = null) {
  fieldsMade += 1;
  input.id = `field-${fieldsMade}`;
  const hints = hint ? [make("p", { class: "hint", id: `${input.id}-hint` }, hint)] : [];
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  const label = make("label", { for: input.id }, ...breakable(words));
  if (mark) label.append(make("span", { class: "mark" }, mark));
  return make("div", { class: "field" }, label, input, ...hints);
}

async function run(operation, { form, submit, stop, outcome }) {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  const trouble = obstacle(operation);
  if (trouble) {
    const input = [...form.querySelectorAll("[data-key]")].find((each) => each.dataset.key === trouble.key);
    input?.setAttribute("aria-invalid", "true");
    input?.focus();
    outcome.say([callout("warn", trouble.message)]);
    return;
  }
  const controller = new AbortController();
  page.running = controller;
  const halt = () => controller.abort();
  stop.addEventListener("click", halt);
  submit.disabled = true;
  stop.hidden = false;
  outcome.say([make("p", { class: "waiting" }, "Waiting for the answer…")]);
  try {
    const sent = await send(operation, controller.signal);
    outcome.say(answerHead(operation, sent), answerBody(sent));
  } catch (error) {
    outcome.say([controller.signal.aborted
      ? callout("warn", "You stopped waiting. The server may still have done what it was asked.")
      : callout("bad", `No answer from the server. Is it still running? (${error.message})`)]);
    if (!controller.signal.aborted) askHealth();
  } finally {
    submit.disabled = false;
    stop.hidden = true;
    stop.removeEventListener("click", halt);
    if (page.running === controller) page.running = null;
  }
}

function answerHead(operation, { answer, raw, tookMs }) {
  const refusal = answer.ok ? null : parsed(raw);
  const size = new Blob([raw]).size;
  const reason = typeof refusal?.reason === "string" ? [code(refusal.reason)] : [];
  const parts = [make("p", { class: "answer-head" }, statusBadge(String(answer.status)), ...reason,
    make("span", { class: "faint" }, `${number(tookMs)} ms · ${number(size)} bytes`))];
  const advice = adviceFor(operation, answer);
  if (advice) parts.push(callout(answer.status >= 500 ? "bad" : "warn", advice));
  return parts;
}

function answerBody({ raw }) {
  if (raw === "") return [make("p", { class: "faint" }, "The answer has no body.")];
  const block = make("pre", { class: "answer", tabindex: "0", role: "region", "aria-label": "Answer" },
    make("code", {}, ...answerText(raw)));
  return [block, copyButton(block, () => block.textContent)];
}

function adviceFor(operation, answer) {
  const wait = answer.headers.get("Retry-After");
  switch (answer.status) {
    case 401: return session.token
      ? "The server does not know this token. Check that it is whole and still valid."
      : "This operation needs a token. Enter one above and send again.";
    case 403: return operation.roles.length
      ? `This token's role does not open the operation. It is open to: ${operation.roles.join(", ")}.` : null;
    case 429: return wait ? `The server is full for now. Try again in ${wait} s.` : "The server is full for now.";
    case 503: return wait ? `The server cannot serve this now. Try again in ${wait} s.` : null;
    default: return null;
  }
}

function answerText(raw) {
  if (parsed(raw) === undefined) return [text(raw.slice(0, SHOWN_CHARS_MAX)), ...cutNote(raw)];
  if (raw.length > COLOURED_CHARS_MAX) return [text(raw.slice(0, SHOWN_CHARS_MAX)), ...cutNote(raw)];
  return colouredJson(raw);
}

const cutNote = (raw) => (raw.length > SHOWN_CHARS_MAX ? [text("\n… the rest is not shown")] : []);

function parsed(raw) {
  try {
    return JSON.parse(raw);
  } catch {
    return undefined;
  }
}

/** Lay JSON out from its own tokens, so that a number is shown as it was sent, however long. */
function colouredJson(raw) {
  const tokens = raw.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const nodes = [];
  let depth = 0;
  const newLine = () => nodes.push(text(`\n${"  ".repeat(depth)}`));
  tokens.forEach((token, index) => {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (!"{[".includes(tokens[index - 1])) newLine();
      nodes.push(text(token));
    } else if (token === "{" || token === "[") {
      depth += 1;
      nodes.push(text(token));
      if (!"}]".includes(tokens[index + 1])) newLine();
    } else if (token === ",") {
      nodes.push(text(token));
      newLine();
    } else if (token === ":") nodes.push(text(": "));
    else nodes.push(make("span", { class: tokenClass(token, tokens[index + 1]) }, token));
  });
  return nodes;
}

function tokenClass(token, next) {
  if (token.startsWith('"')) return next === ":" ? "tok-key" : "tok-string";
  return /^[-\d]/.test(token) ? "tok-number" : "tok-word";
}

// ---------------------------------------------------------------- small pieces

/** An element with attributes and children; strings among the children become text nodes. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const text = (words) => document.createTextNode(words);
const code = (words) => make("code", {}, words);
const section = (title, ...children) => make("section", { class: "part" }, make("h2", {}, title), ...children);
const callout = (tone, words) => make("p", { class: "callout", "data-tone": tone }, words);
const badge = (method) => make("span", { class: "method", "data-method": method }, method);
const statusBadge = (status) => make("span", { class: "status-code", "data-class": status[0] }, status);
const withoutStop = (sentence) => sentence.replace(/\.$/, "");

function sentenceCase(words) {
  const spaced = words.replaceAll(/[-_]/g, " ");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

/** Words in `backticks` become code. */
function prose(words) {
  return words.split(/`([^`]+)`/).map((part, index) => (index % 2 ? code(part) : text(part)));
}

/** Phrases with a dot between them. */
function separated(phrases) {
  return phrases.flatMap((phrase, index) => (index ? [make("span", { class: "sep" }, " · "), phrase] : [phrase]));
}

/** Long names may wrap after a joint, and nowhere else. */
function breakable(name) {
  return name.split(/(?<=[_/-])/).flatMap((part, index) => (index ? [make("wbr"), text(part)] : [text(part)]));
}

function pathText(path) {
  const parts = path.split(/(\{[^}]+\})/).flatMap((part, index) =>
    (index % 2 ? [make("span", { class: "slot" }, part)] : breakable(part)));
  return make("code", { class: "path" }, ...parts);
}
