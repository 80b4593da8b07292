"use strict";
// Shows the facts that stand in the page. Text that others wrote becomes text nodes, never markup.
(() => {
const facts = JSON.parse(document.getElementById("facts").textContent);
const {adapters, cases, grid, notes, outcomes} = facts;
const rules = new Map(facts.rules.map(([ident, text, section]) => [ident, {text, section}]));
const chapters = [...new Set(cases.map((one) => one.chapter))];
const PAGE = 200; // rows drawn at once; a button draws more
const SIGNS = {pass: "✓", fail: "✕", warn: "!", skip: "–"};
const VIEWS = ["failures", "rules", "cases"];
const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

// --- facts

const note = (adapter, place) => notes[`${adapter} ${place}`] ?? {};

/** How an outcome looks: pass, fail, warn (a wrong code that counts as passed), skip. */
function look(index) {
  const [name, bucket] = outcomes[index];
  if (bucket === "failed") return "fail";
  if (bucket === "skipped") return "skip";
  return name === "pass" ? "pass" : "warn";
}

function tally(adapter, places) {
  const found = {pass: 0, fail: 0, warn: 0, skip: 0};
  for (const place of places) if (grid[adapter][place] >= 0) found[look(grid[adapter][place])]++;
  return found;
}

const words = cases.map((one) =>
  [one.id, one.title, one.chapter, one.want, one.weakness, one.level, ...one.edit,
    ...one.rules.flatMap((ident) => [ident, rules.get(ident)?.text ?? ""])]
    .join("\n").toLowerCase());

function wordsOf(adapter, place) {
  const {detail = "", differences = []} = note(adapter, place);
  return [adapters[adapter].label, outcomes[grid[adapter][place]][0], detail, ...differences.flat()]
    .join("\n").toLowerCase();
}

// --- what is asked for, kept behind the # of the address

const state = {view: "", loader: "", chapter: "", outcome: "", text: ""};

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(state)) state[key] = given.get(key) ?? "";
  if (!VIEWS.includes(state.view)) state.view = anyWrong ? "failures" : "rules";
  for (const key of ["loader", "chapter", "outcome", "text"]) {
    $(key).value = state[key];
    state[key] = $(key).value; // a select takes none but its own
  }
}

function writeAddress() {
  const kept = Object.entries(state).filter(([, value]) => value !== "");
  try {
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  } catch { /* some browsers forbid it for files; the page works without */ }
}

const columns = () => adapters.map((_, i) => i)
  .filter((i) => state.loader === "" || adapters[i].label === state.loader);

/** For each case the adapters whose result is asked for. */
function matches() {
  const asked = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  return cases.map((one, place) => {
    if (state.chapter !== "" && one.chapter !== state.chapter) return [];
    const open = asked.filter((word) => !words[place].includes(word));
    return columns().filter((adapter) => {
      const index = grid[adapter][place];
      if (index < 0 || (state.outcome !== "" && !outcomes[index].includes(state.outcome))) return false;
      if (!open.length) return true;
      const more = wordsOf(adapter, place);
      return open.every((word) => more.includes(word));
    });
  });
}

// --- one case, opened

/** Text with `words of the format` in it. */
function rich(text) {
  return el("span", {}, ...text.split("`").map((part, i) => i % 2 ? el("code", {}, part) : part));
}

function bytes(rows) {
  const pre = el("pre", {tabindex: 0, "aria-label": "Bytes of the file; edited ones are marked"});
  for (const row of rows) {
    if (row.apart) pre.append("…\n");
    const pairs = row.hex.match(/../g) ?? [];
    const edited = (i) => row.under.some(([low, high, , edit]) => edit && low <= i && i < high);
    pre.append(row.at.toString(16).padStart(8, "0"), "  ");
    pairs.forEach((pair, i) => pre.append(edited(i) ? el("mark", {}, pair) : pair, " "));
    pre.append(pairs.length ? `${"   ".repeat(16 - pairs.length)} ${row.text}\n` : "past the end of the file\n");
    for (const [low, high, field, edit] of row.under) {
      const line = `${"   ".repeat(low)}${Array(high - low).fill(edit ? "^^" : "--").join(" ")}`;
      pre.append(el("span", {class: edit ? "edit" : "near"}, `${" ".repeat(10)}${line.padEnd(47)}  ${field}\n`));
    }
    if (row.cut) pre.append("…\n");
  }
  return pre;
}

function copyable(text) {
  const line = el("pre", {tabindex: 0}, text);
  const button = el("button", {type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(line);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }}, "Copy");
  return el("div", {class: "again"}, line, button);
}

function list(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value).flatMap(([name, value]) =>
    [el("dt", {}, name), el("dd", {}, value)]));
}

function ofCase(place) {
  const one = cases[place];
  return [
    list([
      ["Title", one.title],
      ...one.rules.map((ident) => [`Rule ${ident}`, rich(rules.get(ident)?.text || " ")]),
      ...one.edit.map((edit) => ["Edit", el("code", {}, edit)]),
      ["Must be", one.want + (one.level === "deep" ? ", by the deep checks" : "")],
      ["Size", one.size ? `${one.size.toLocaleString("en")} bytes` : ""],
      ["Weakness", one.weakness],
    ]),
    ...(one.bytes?.length ? [bytes(one.bytes)] : []),
  ];
}

const badge = (index) => el("span", {class: `badge ${look(index)}`}, outcomes[index][0]);
const labels = (group) => group.map((adapter) => adapters[adapter].label).join(", ");

/** The adapters that say the same of a case, together; the worst first. */
function alike(place, chosen) {
  const groups = new Map();
  for (const adapter of chosen) {
    const index = grid[adapter][place];
    const {differences, detail} = note(adapter, place);
    const key = JSON.stringify([index, look(index) === "skip" ? detail : differences]);
    groups.set(key, [...(groups.get(key) ?? []), adapter]);
  }
  const rank = ([adapter]) => ["fail", "warn", "skip", "pass"].indexOf(look(grid[adapter][place]));
  return [...groups.values()].sort((a, b) => rank(a) - rank(b));
}

function ofGroup(place, group) {
  const {detail, differences, stderr, again} = note(group[0], place);
  const node = el("div", {class: "result"}, badge(grid[group[0]][place]), labels(group));
  if (detail) node.append(el("div", {class: "mono"}, detail));
  if (differences) {
    node.append(el("div", {class: "scroll differences"}, el("table", {},
      el("thead", {}, el("tr", {}, ...["Where", "Want", "Got"].map((name) => el("th", {scope: "col"}, name)))),
      el("tbody", {}, ...differences.map(([where, want, got]) => el("tr", {},
        el("td", {}, where), el("td", {class: "want"}, want), el("td", {class: "got"}, got)))))));
  }
  if (stderr) {
    node.append(el("details", {}, el("summary", {}, "Standard error"), el("pre", {tabindex: 0}, stderr)));
  }
  if (again) node.append(el("h3", {}, "Repeat it"), copyable(again));
  return node;
}

/** Everything about a case: itself, then what came of it. */
function opened(place, groups) {
  return [...ofCase(place), ...groups.map((group) => ofGroup(place, group))];
}

/** A case that opens; what is inside is made when it is opened first. */
function item(place, groups) {
  const inside = el("div", {class: "inside"});
  const node = el("details", {class: "item", ontoggle: () => {
    if (node.open && !inside.hasChildNodes()) inside.append(...opened(place, groups));
  }},
  el("summary", {},
    ...[...new Set(groups.map((group) => grid[group[0]][place]))].map(badge),
    el("span", {class: "name"}, cases[place].id), " ",
    el("span", {class: "quiet"}, labels(groups.filter(([first]) => note(first, place).again).flat())),
    el("span", {class: "sub"}, cases[place].title)),
  inside);
  return node;
}

/** Puts things into a parent, a page at a time. */
function paged(parent, things, draw, wrap = (button) => button) {
  const next = (from) => {
    const made = things.slice(from, from + PAGE).map(draw);
    parent.append(...made.flat());
    const left = things.length - from - PAGE;
    if (left > 0) {
      const last = wrap(el("button", {type: "button", class: "more", onclick: () => {
        last.remove();
        next(from + PAGE);
      }}, `Show ${Math.min(left, PAGE)} more of ${left}`));
      parent.append(last);
    }
    return made;
  };
  next(0);
}

// --- the three views

function failures(found) {
  const groups = [];
  found.forEach((chosen, place) => {
    for (const group of alike(place, chosen.filter((adapter) => note(adapter, place).again))) {
      groups.push({place, group, failed: look(grid[group[0]][place]) === "fail"});
    }
  });
  const node = el("div");
  for (const [title, failed] of [["Failed", true], ["Warnings and known failures", false]]) {
    const part = groups.filter((one) => one.failed === failed);
    if (!part.length) continue;
    const place = el("div");
    paged(place, part, (one) => item(one.place, [one.group]));
    node.append(el("h3", {}, `${title} · ${part.length}`), place);
  }
  if (!groups.length) node.append(el("p", {}, anyWrong ? "Nothing here matches the filter." : "Nothing failed."));
  return node;
}

function matrix(title, wide) {
  const shown = columns();
  const body = el("tbody");
  const node = el("div", {class: `scroll matrix${wide ? " wide-cells" : ""}`, role: "region", tabindex: 0,
    "aria-label": `${title}s by loaders`},
  el("table", {}, el("thead", {}, el("tr", {}, el("th", {scope: "col"}, title), ...shown.map((adapter) =>
    el("th", {scope: "col", class: "loader", title: adapters[adapter].label}, el("span", {}, adapters[adapter].label))))),
  body));
  return {node, body, shown};
}

/** A row that opens a second one below it. */
function row(head, sub, cells, shown, open) {
  const button = el("button", {type: "button", class: "plain mono", "aria-expanded": "false"}, head);
  const node = el("tr", {class: "row", onclick: () => {
    const is = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!is));
    if (is) node.nextSibling.remove();
    else node.after(el("tr", {class: "open"}, el("td", {colspan: shown.length + 1},
      el("div", {class: "inside"}, ...open()))));
  }}, el("th", {scope: "row"}, button, el("span", {class: "sub"}, rich(sub))), ...cells);
  return node;
}

/** Passed of those that ran, as a cell. */
function share(adapter, places) {
  const {pass, fail, warn, skip} = tally(adapter, places);
  const ran = pass + warn + fail;
  const text = ran ? `${pass + warn}/${ran}` : skip ? SIGNS.skip : "";
  const tone = fail ? "fail" : warn ? "warn" : ran ? "pass" : "skip";
  const hint = `${adapters[adapter].label}: ${pass + warn} passed, ${fail} failed, ${skip} skipped`;
  return el("td", {class: `cell ${tone}`, title: hint}, text);
}

function rulesView(found) {
  const {node, body, shown} = matrix("Rule", true);
  const list = [...rules.keys()].filter((ident) =>
    found.some((chosen, place) => chosen.length && cases[place].rules.includes(ident)));
  paged(body, list, (ident) => {
    const places = cases.map((_, place) => place).filter((place) => cases[place].rules.includes(ident));
    const {text, section} = rules.get(ident);
    return row(ident, text, shown.map((adapter) => share(adapter, places)), shown, () => {
      const inside = el("div");
      const chosen = places.filter((place) => found[place].length)
        .map((place) => ({place, groups: alike(place, found[place])}));
      const worst = ({place, groups}) => groups.some((group) => note(group[0], place).again) ? 0 : 1;
      paged(inside, chosen.sort((a, b) => worst(a) - worst(b)), ({place, groups}) => item(place, groups));
      return [el("p", {}, rich(text), section ? el("span", {class: "quiet"}, ` (section ${section})`) : ""), inside];
    });
  }, tableRow(shown));
  return node;
}

const tableRow = (shown) => (button) =>
  el("tr", {}, el("td", {colspan: shown.length + 1}, button));

function casesView(found) {
  const {node, body, shown} = matrix("Case", false);
  const places = cases.map((_, place) => place).filter((place) => found[place].length);
  let part = null;
  paged(body, places, (place) => {
    const one = cases[place];
    const made = [];
    if (one.chapter !== part) {
      part = one.chapter;
      const mine = places.filter((other) => cases[other].chapter === part);
      made.push(el("tr", {class: "part"}, el("th", {scope: "rowgroup"}, `${part} · ${mine.length}`),
        ...shown.map((adapter) => el("td", {class: "cell"}))));
    }
    const cells = shown.map((adapter) => {
      const index = grid[adapter][place];
      if (index < 0) return el("td", {class: "cell"});
      const hint = `${adapters[adapter].label}: ${outcomes[index][0]}`;
      return el("td", {class: `cell ${look(index)}`, title: hint},
        el("span", {role: "img", "aria-label": outcomes[index][0]}, SIGNS[look(index)]));
    });
    made.push(row(one.id, one.title, cells, shown,
      () => opened(place, alike(place, shown.filter((adapter) => grid[adapter][place] >= 0)))));
    return made;
  }, tableRow(shown));
  return node;
}

// --- the page

function loaders() {
  const all = cases.map((_, place) => place);
  const rows = adapters.map((adapter, i) => {
    const found = tally(i, all);
    const bar = el("div", {class: "bar", "aria-hidden": "true"});
    for (const kind of ["pass", "warn", "fail", "skip"]) {
      if (!found[kind]) continue;
      const piece = el("i", {class: kind});
      piece.style.flexGrow = found[kind];
      bar.append(piece);
    }
    const about = [adapter.loader, adapter.language, adapter.profiles.join(" ")].filter(Boolean).join(" · ");
    const only = el("button", {type: "button", class: "plain", title: "Show the results of this loader only",
      onclick: () => {
        $("loader").value = state.loader === adapter.label ? "" : adapter.label;
        changed();
      }}, adapter.label);
    return el("tr", {}, el("th", {scope: "row"}, only, el("span", {class: adapter.started ? "sub about" : "sub"}, adapter.started ? about : "did not start"),
      ...adapter.guards.map((text) => el("span", {class: "sub guard"}, text))),
      el("td", {class: "bar-cell"}, bar),
      el("td", {class: "number"}, String(found.pass + found.warn),
        found.warn ? el("span", {class: "sub"}, `${found.warn} wrong code`) : ""),
      el("td", {class: `number${found.fail ? " count-fail" : ""}`}, String(found.fail)),
      el("td", {class: "number"}, String(found.skip)));
  });
  $("loaders").append(el("div", {class: "scroll"}, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {scope: "col"}, "Loader"), el("td", {class: "bar-cell"}),
      ...["Passed", "Failed", "Skipped"].map((name) => el("th", {scope: "col", class: "number"}, name)))),
    el("tbody", {}, ...rows))));
}

function problems() {
  for (const adapter of adapters.filter((one) => one.problem)) {
    $("problems").append(el("div", {class: "alert"}, el("strong", {}, `${adapter.label}${adapter.started ? "" : " did not start"}: `),
      adapter.problem, adapter.stderr ? el("pre", {tabindex: 0}, adapter.stderr) : "", copyable(adapter.doctor)));
  }
  for (const text of facts.problems) {
    $("problems").append(el("div", {class: "alert"}, el("strong", {}, "Known failures: "), text));
  }
}

function choices(id, first, values) {
  const option = ([value, text]) => Object.assign(el("option", {}, text), {value});
  $(id).append(...[["", first], ...values].map(option));
}

function tabs() {
  $("tabs").append(...VIEWS.map((view) => el("button", {type: "button", role: "tab", id: `tab-${view}`,
    "aria-controls": "view", onclick: () => { state.view = view; draw(); }})));
  $("tabs").addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    state.view = VIEWS[(VIEWS.indexOf(state.view) + step + VIEWS.length) % VIEWS.length];
    draw();
    $(`tab-${state.view}`).focus();
  });
}

function draw() {
  writeAddress();
  const found = matches();
  const count = (test) => found.filter((chosen, place) => chosen.some((adapter) => test(grid[adapter][place]))).length;
  const some = count(() => true);
  const failed = count((index) => look(index) === "fail");
  for (const view of VIEWS) {
    const tab = $(`tab-${view}`);
    const is = view === state.view;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    tab.textContent = view[0].toUpperCase() + view.slice(1);
  }
  $("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  $("shown").textContent = `${some} of ${cases.length} cases, ${failed} of them failed`;
  const make = {failures, rules: rulesView, cases: casesView}[state.view];
  $("view").replaceChildren(make(found));
}

function changed() {
  for (const key of ["loader", "chapter", "outcome", "text"]) state[key] = $(key).value;
  draw();
}

function theme() {
  const button = $("theme");
  const dark = () => (document.documentElement.dataset.theme
    ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.title = `${button.textContent} colours`; };
  try {
    const kept = localStorage.getItem("weig-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch { /* no storage: the choice lasts as long as the page */ }
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("weig-theme", document.documentElement.dataset.theme); } catch { /* as above */ }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  button.hidden = false;
}

/** Arrow keys go from row to row, slash to the filter. */
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("text")) {
    if (event.key === "Escape" && $("text").value) { $("text").value = ""; changed(); }
    if (event.key !== "ArrowDown") return;
  } else if (event.target.matches("input, select, [role=tab]")) return;
  if (event.key === "/") {
    $("text").focus();
    $("text").select();
    event.preventDefault();
  }
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (!step) return;
  const stops = [...$("view").querySelectorAll("details.item > summary, tr.row > th > button")];
  const at = stops.indexOf(document.activeElement);
  if (at < 0 && event.target !== $("text")) return; // the arrows scroll
  event.preventDefault();
  if (at + step < 0) $("text").focus();
  else stops[at + step]?.focus();
}

const anyWrong = Object.values(notes).some((one) => one.again);
const there = new Set(grid.flat().filter((index) => index >= 0));
$("summary").classList.add(facts.conforms ? "pass" : "fail");
$("run").textContent = facts.run;
choices("loader", "All loaders", adapters.map(({label}) => [label, label]));
choices("chapter", "All chapters", chapters.map((name) => [name, name]));
choices("outcome", "All outcomes", [
  ...["passed", "failed", "skipped"].map((name) => [name, `${name} (all)`]),
  ...[...there].sort((a, b) => a - b).map((index) => [outcomes[index][0], outcomes[index][0]]),
]);
problems();
loaders();
tabs();
theme();
let waiting;
$("text").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(changed, 120); // milliseconds: not at every key of a word
});
$("filter").addEventListener("change", changed);
$("filter").addEventListener("submit", (event) => { event.preventDefault(); changed(); });
$("filter").addEventListener("reset", () => setTimeout(changed)); // once the fields are empty
document.addEventListener("keydown", keys);
addEventListener("hashchange", () => { readAddress(); draw(); });
readAddress();
document.querySelector("main").hidden = false;
document.querySelector("footer").hidden = false;
draw();
})();
