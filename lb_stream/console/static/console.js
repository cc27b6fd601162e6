"use strict";
// Keeps a page live: new entries, refreshed figures, countdowns, the theme, and keys.
// Without it the page shows the same, as of the time when it was loaded.

const root = document.documentElement;
const { now: serverNow, refresh: refreshMs, zone } = document.body.dataset;
const clockSkewMs = Number(serverNow) - Date.now(); // countdowns go by the server's clock

// --- theme ---

const themeButton = document.getElementById("theme");

function isDark() {
  const { theme } = root.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function labelThemeButton() {
  themeButton.textContent = isDark() ? "Light" : "Dark";
}

function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  labelThemeButton();
  drawCharts();
}

themeButton.hidden = false;
themeButton.addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  labelThemeButton();
  drawCharts();
});
labelThemeButton();

// --- countdowns ---

function describeTimeLeft(seconds) {
  if (seconds <= 0) return "now";
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

setInterval(() => {
  for (const element of document.querySelectorAll("[data-until]")) {
    const leftMs = Number(element.dataset.until) - Date.now() - clockSkewMs;
    const text = describeTimeLeft(Math.round(leftMs / 1000));
    if (element.textContent !== text) element.textContent = text;
  }
}, 500);

// --- figures, every few seconds ---

const KEEP_STREAMED_MS = 60000; // by then the tables have what the stream has sent

function replaceElement(old, fresh) {
  const streamed = old.id === "feed" ? findStreamedEntries(old, fresh) : [];
  if (old.innerHTML === fresh.innerHTML && !streamed.length) return;
  const { activeElement } = document;
  const focused = old.contains(activeElement) ? activeElement.getAttribute("href") : null;
  for (const entry of streamed.reverse()) putEntry(fresh, entry);
  keepChoices(old, fresh);
  old.replaceWith(fresh);
  const links = focused ? [...fresh.querySelectorAll("a")] : [];
  links.find((link) => link.getAttribute("href") === focused)?.focus();
}

// In place of its earlier state: a move has a further phase, a command its result.
function putEntry(feed, entry) {
  const earlier = [...feed.children].find((other) => other.dataset.id === entry.dataset.id);
  if (earlier) earlier.replaceWith(entry);
  else feed.prepend(entry);
}

// The ids of an entry: its own, and those of all decisions of a move.
function idsOf(entry) {
  return entry.dataset.known.split(" ");
}

// Entries that the stream has sent and that the tables don't have yet.
function findStreamedEntries(old, fresh) {
  const inTables = new Set([...fresh.querySelectorAll(".entry")].flatMap(idsOf));
  return [...old.querySelectorAll(".entry.new")].filter((entry) => {
    const ageMs = Date.now() - Number(entry.dataset.arrived);
    return !idsOf(entry).every((id) => inTables.has(id)) && ageMs < KEEP_STREAMED_MS;
  });
}

function showDisconnected() {
  const warning = document.createElement("p");
  warning.className = "banner down";
  warning.setAttribute("role", "alert");
  warning.textContent = "The console doesn't answer. This page shows its last answer.";
  document.getElementById("banner").replaceChildren(warning);
}

let pageTag = ""; // the ETag of the page that is shown: the server sends no page with the same tag

async function refreshPage() {
  if (document.hidden) return;
  try {
    const headers = pageTag ? { "If-None-Match": pageTag } : {};
    const answer = await fetch(location.href, { credentials: "same-origin", headers });
    if (answer.status === 304) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.getElementById("banner")) throw new Error("the answer is not a page");
    pageTag = answer.headers.get("ETag") ?? "";
    if (!fresh.body.dataset.refresh) clearInterval(refreshTimer); // a forecast is complete
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const replacement = fresh.getElementById(old.id);
      if (replacement) replaceElement(old, document.adoptNode(replacement));
    }
    drawCharts(true);
  } catch {
    pageTag = "";
    showDisconnected();
  }
}

const refreshTimer = refreshMs ? setInterval(refreshPage, Number(refreshMs)) : 0;

// --- what is open ---

// The address names what is open, so that a refreshed or shared page shows the same.
function keepOpen({ target }) {
  const address = new URL(location.href);
  const names = new Set((address.searchParams.get("open") ?? "").split(",").filter(Boolean));
  if (target.open) names.add(target.id);
  else names.delete(target.id);
  if (names.size) address.searchParams.set("open", [...names].join(","));
  else address.searchParams.delete("open");
  if (address.href !== location.href) history.replaceState(null, "", address);
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches("details[id]")) keepOpen(event);
}, true);

// --- plans of proposals ---

const chosenOf = (element) => [...element.querySelectorAll("[data-together]")];

// Boxes stay as they were checked while their page is refreshed.
function keepChoices(old, fresh) {
  const unchecked = new Set();
  for (const box of chosenOf(old)) if (!box.checked) unchecked.add(box.value);
  for (const box of chosenOf(fresh)) box.checked = !unchecked.has(box.value);
  fresh.querySelectorAll("[data-proposals]").forEach(countChoices);
}

// The button says how many are approved.
function countChoices(form) {
  const button = form.querySelector("[data-verb]");
  if (!button) return;
  const { verb, noun } = button.dataset;
  const count = chosenOf(form).filter((box) => box.checked).length;
  button.textContent = `${verb} ${count} ${noun}${count === 1 ? "" : "s"}…`;
  for (const other of form.querySelectorAll("button")) other.disabled = count === 0;
}

// Moves that belong together are chosen together.
addEventListener("change", ({ target }) => {
  const form = target.closest("[data-proposals]");
  if (!form) return;
  for (const box of chosenOf(form)) {
    if (box.dataset.together === target.dataset.together) box.checked = target.checked;
  }
  countChoices(form);
});
document.querySelectorAll("[data-proposals]").forEach(countChoices);

// --- entries from the stream ---

const MAX_ENTRIES = 60;

function addEntry(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // rendered by the server, which escapes every name
  const entry = template.content.firstElementChild;
  const feed = document.getElementById("feed");
  feed.querySelector(".none")?.remove();
  entry.classList.add("new");
  entry.dataset.arrived = String(Date.now());
  putEntry(feed, entry);
  while (feed.children.length > MAX_ENTRIES) feed.lastElementChild.remove();
}

const streamed = document.querySelector("[data-stream]");
if (streamed && refreshMs) {
  const source = new EventSource(streamed.dataset.stream);
  source.addEventListener("entry", (event) => addEntry(JSON.parse(event.data).html));
  addEventListener("pagehide", () => source.close());
}

// --- keys ---

// The first link of each row and entry. Entries begin with their cluster's link, if it is shown.
const ENTRY_LINKS = [
  "main tbody td:first-child a.name",
  "main .entry .subject > a:first-child:not(.cluster-name)",
  "main .entry .subject > .cluster-name + a",
].join();
const keysDialog = document.getElementById("keys");

function focusNeighbour(step) {
  const links = [...document.querySelectorAll(ENTRY_LINKS)];
  const index = links.indexOf(document.activeElement) + step;
  links[Math.min(links.length - 1, Math.max(0, index))]?.focus();
}

function follow(relation) {
  document.querySelector(`main a[rel="${relation}"]`)?.click();
}

// What the keys of the whole page do; keys.py describes them.
const KEY_ACTIONS = {
  "/": () => document.getElementById("q").focus(),
  g: () => location.assign("/"),
  j: () => focusNeighbour(1),
  k: () => focusNeighbour(-1),
  "[": () => follow("prev"),
  "]": () => follow("next"),
  t: switchTheme,
  "?": () => keysDialog.showModal(),
};

const keysButton = document.getElementById("show-keys");
keysButton.hidden = false;
keysButton.addEventListener("click", KEY_ACTIONS["?"]);

addEventListener("keydown", (event) => {
  const isText = event.getModifierState("AltGraph"); // as [ is on many keyboards
  if (!isText && (event.ctrlKey || event.metaKey || event.altKey)) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = Object.hasOwn(KEY_ACTIONS, event.key) ? KEY_ACTIONS[event.key] : null;
  if (!action || keysDialog.open) return;
  event.preventDefault();
  action();
});
