"use strict";
// Keeps a page live: new entries, refreshed figures, countdowns, charts, the theme, and keys.
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
  return `${Math.floor(seconds / 3600)} h`;
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
  fresh.prepend(...streamed);
  old.replaceWith(fresh);
  const links = focused ? [...fresh.querySelectorAll("a")] : [];
  links.find((link) => link.getAttribute("href") === focused)?.focus();
}

// Entries that the stream has sent and that the tables don't have yet.
function findStreamedEntries(old, fresh) {
  const inTables = new Set([...fresh.children].map((entry) => entry.dataset.id));
  return [...old.querySelectorAll(".entry.new")].filter((entry) => {
    const ageMs = Date.now() - Number(entry.dataset.arrived);
    return !inTables.has(entry.dataset.id) && ageMs < KEEP_STREAMED_MS;
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

// --- entries from the stream ---

const MAX_ENTRIES = 60;

function addEntry(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // rendered by the server, which escapes every name
  const entry = template.content.firstElementChild;
  const feed = document.getElementById("feed");
  const { id } = entry.dataset;
  const isReplaced = (other) => other.dataset.id === id || other.classList.contains("none");
  [...feed.children].find(isReplaced)?.remove();
  entry.classList.add("new");
  entry.dataset.arrived = String(Date.now());
  feed.prepend(entry);
  while (feed.children.length > MAX_ENTRIES) feed.lastElementChild.remove();
}

const streamed = document.querySelector("[data-stream]");
if (streamed && refreshMs) {
  const source = new EventSource(streamed.dataset.stream);
  source.addEventListener("entry", (event) => addEntry(JSON.parse(event.data).html));
  addEventListener("pagehide", () => source.close());
}

// --- colours and numbers of charts ---

const LINE_COLOURS = ["--h4", "--h2", "--h1", "--h3", "--h5"];
const BYTE_UNITS = [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [0, "B/s"]];

// A canvas doesn't know light-dark(): the browser resolves the colour on a hidden element.
const colourElement = document.body.appendChild(document.createElement("span"));
colourElement.hidden = true;

function resolveColour(name) {
  colourElement.style.color = `var(${name})`;
  return getComputedStyle(colourElement).color;
}

function formatFigure(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "ratio") return `${(100 * value).toFixed(1)} %`;
  const [size, name] = BYTE_UNITS.find(([least]) => value >= least) ?? BYTE_UNITS.at(-1);
  return `${Number((value / (size || 1)).toPrecision(3))} ${name}`;
}

function buildStyle(line, number) {
  const styles = {
    mean: { label: "mean", colour: "--dim", width: 2, dash: [] },
    max: { label: "max", colour: "--text", width: 1.5, dash: [] },
    min: { label: "min", colour: "--dim", width: 1, dash: [3, 3] },
  };
  const colour = LINE_COLOURS[number % LINE_COLOURS.length];
  const style = styles[line.kind] ?? { label: line.name, colour, width: 1.5, dash: [] };
  return { ...style, stroke: resolveColour(style.colour) };
}

// --- times of charts ---

// All times are in the server's zone, as those of the page are, and not in the browser's.
const fixedOffset = /^([+-])(\d\d):(\d\d)$/.exec(zone);

function toServerZone(ms) {
  if (!fixedOffset) return uPlot.tzDate(new Date(ms), zone);
  const [, sign, hours, minutes] = fixedOffset;
  const offsetMs = Number(`${sign}1`) * (60 * hours + Number(minutes)) * 60000;
  return uPlot.tzDate(new Date(ms + offsetMs), "UTC");
}

const twoDigits = (value) => String(value).padStart(2, "0");

function dayOf(date) {
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
}

// Times of day, with the date below the first time of each day that isn't today.
function formatTimes(plot, ticks) {
  const spanS = plot.scales.x.max - plot.scales.x.min;
  let lastDay = dayOf(toServerZone(Date.now() + clockSkewMs));
  return ticks.map((tick) => {
    const date = toServerZone(1000 * tick);
    const seconds = spanS < 600 ? `:${twoDigits(date.getSeconds())}` : "";
    const time = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}${seconds}`;
    const day = dayOf(date);
    const isNewDay = day !== lastDay;
    lastDay = day;
    return isNewDay ? `${time}\n${day}` : time;
  });
}

// --- charts ---

const SVG = "http://www.w3.org/2000/svg";

function buildKeyLine(style) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 14 8");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M0 4h14");
  line.setAttribute("stroke", style.stroke);
  line.setAttribute("stroke-width", "2.5");
  if (style.dash.length) line.setAttribute("stroke-dasharray", "3 3");
  svg.append(line);
  return svg;
}

// The value at an index; without an index, the last known value.
function valueAt(values, index) {
  if (index !== null && index !== undefined) return values[index];
  return values.findLast((value) => value !== null);
}

function showLegend(legend, styles, lines, index, unit) {
  const keys = styles.map((style, number) => {
    const key = document.createElement("span");
    key.className = "key";
    const value = document.createElement("b");
    value.textContent = formatFigure(valueAt(lines[number].values, index), unit);
    key.append(buildKeyLine(style), document.createTextNode(style.label), value);
    return key;
  });
  legend.replaceChildren(...keys);
}

// The mark nearest to a position, within 8 pixels.
function findMark(plot, marks, left) {
  let nearest = null;
  let nearestPx = 8;
  for (const mark of marks) {
    const distancePx = Math.abs(plot.valToPos(mark.at_ms / 1000, "x") - left);
    if (distancePx < nearestPx) [nearest, nearestPx] = [mark, distancePx];
  }
  return nearest;
}

function drawMarks({ ctx, bbox, valToPos }, marks) {
  const size = 5 * devicePixelRatio;
  ctx.save();
  for (const mark of marks) {
    const isCarriedOut = mark.outcome === null || mark.outcome === "confirmed";
    ctx.fillStyle = resolveColour(isCarriedOut ? "--accent" : "--down");
    const x = valToPos(mark.at_ms / 1000, "x", true);
    const y = bbox.top + bbox.height;
    ctx.beginPath();
    ctx.moveTo(x, y - 1.6 * size);
    ctx.lineTo(x + size, y);
    ctx.lineTo(x - size, y);
    ctx.fill();
  }
  ctx.restore();
}

function describeMark(mark) {
  const route = `${mark.source} → ${mark.destination ?? "no broker"}`;
  return `${mark.kind} ${mark.bundle}: ${route}: ${mark.ended}`;
}

function buildAxes(unit) {
  const axis = {
    stroke: resolveColour("--dim"),
    grid: { stroke: resolveColour("--line"), width: 1 },
    ticks: { stroke: resolveColour("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const formatTick = (value) =>
    unit === "ratio" ? `${Number((100 * value).toFixed(1))} %` : formatFigure(value, unit);
  const times = { values: formatTimes, space: 64, size: 44 };
  const zoneLabel = { label: zone, labelSize: 16, labelGap: 0, labelFont: axis.font };
  const figures = {
    size: unit === "ratio" ? 56 : 82,
    values: (_, ticks) => ticks.map(formatTick),
  };
  return [{ ...axis, ...times, ...zoneLabel }, { ...axis, ...figures }];
}

function drawChart(figure, chart) {
  figure.querySelector(".uplot")?.remove();
  const { lines, marks, unit } = chart;
  const legend = figure.querySelector(".legend");
  let number = 0; // of brokers' and bundles' lines, which take colours in turn
  const styles = lines.map((line) => buildStyle(line, line.kind === "single" ? number++ : 0));
  const times = chart.times_ms.map((ms) => ms / 1000);
  const emptyHeight = unit === "ratio" ? 0.1 : 1;
  const options = {
    width: figure.clientWidth,
    height: 216,
    legend: { show: false },
    series: [{}, ...styles.map((style) => ({ ...style, points: { show: false } }))],
    tzDate: (seconds) => toServerZone(1000 * seconds),
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      x: { range: [times[0], times.at(-1)] },
      y: { range: (_, min, max) => [0, (max || emptyHeight) * 1.08] },
    },
    axes: buildAxes(unit),
    hooks: {
      setCursor: [(plot) => {
        showLegend(legend, styles, lines, plot.cursor.idx, unit);
        const mark = plot.cursor.left >= 0 ? findMark(plot, marks, plot.cursor.left) : null;
        plot.over.style.cursor = mark ? "pointer" : "";
        plot.over.title = mark ? describeMark(mark) : "";
      }],
      draw: [(plot) => drawMarks(plot, marks)],
    },
  };
  const plot = new uPlot(options, [times, ...lines.map((line) => line.values)], figure);
  plot.over.addEventListener("click", () => {
    const mark = findMark(plot, marks, plot.cursor.left);
    if (mark) location.href = `/decision?id=${encodeURIComponent(mark.decision_id)}`;
  });
  figure.plot = plot;
  showLegend(legend, styles, lines, null, unit);
}

async function drawCharts(isRefresh = false) {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (isRefresh || !figure.chart) {
      const answer = await fetch(figure.dataset.chart);
      if (!answer.ok) continue;
      figure.chart = await answer.json();
    }
    drawChart(figure, figure.chart);
  }
}
drawCharts();

let resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(drawCharts, 150);
});

// --- keys ---

// The first link of each row and entry. Entries begin with their cluster's link, if it is shown.
const ENTRY_LINKS = [
  "main tbody td:first-child a.name",
  "main .entry .subject > a:first-child:not(.cluster-name)",
  "main .entry .subject > .cluster-name + a",
].join();

function focusNeighbour(step) {
  const links = [...document.querySelectorAll(ENTRY_LINKS)];
  const index = links.indexOf(document.activeElement) + step;
  links[Math.min(links.length - 1, Math.max(0, index))]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("q").focus();
  }
  if (event.key === "g") location.href = "/";
  if (event.key === "t") switchTheme();
  if (event.key === "j") focusNeighbour(1);
  if (event.key === "k") focusNeighbour(-1);
});
