"use strict";
// What makes a page live: entries as they come, figures every few seconds, countdowns, charts, the theme, keys. The page is whole without it.

const root = document.documentElement;
const skew = Number(document.body.dataset.now) - Date.now(); // the server's clock counts

// --- theme ---

const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const themeButton = document.getElementById("theme");
function nameTheme() {
  themeButton.textContent = dark() ? "Light" : "Dark";
}
function switchTheme() {
  root.dataset.theme = dark() ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  nameTheme();
  drawAll();
}
themeButton.hidden = false;
themeButton.addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { nameTheme(); drawAll(); });
nameTheme();

// --- countdowns ---

setInterval(() => {
  for (const one of document.querySelectorAll("[data-until]")) {
    const left = Math.round((Number(one.dataset.until) - Date.now() - skew) / 1000);
    const text = left <= 0 ? "now" : left < 120 ? `${left} s` : left < 7200 ? `${Math.floor(left / 60)} min` : `${Math.floor(left / 3600)} h`;
    if (one.textContent !== text) one.textContent = text;
  }
}, 500);

// --- figures, every few seconds ---

const every = Number(document.body.dataset.refresh || 0);
const banner = document.getElementById("banner");

function replace(old, fresh) {
  const kept = old.id === "feed" ? recent(old, fresh) : [];
  if (old.innerHTML === fresh.innerHTML && !kept.length) return;
  const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  fresh.prepend(...kept);
  old.replaceWith(fresh);
  if (focused) [...fresh.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
}

// Entries that came over the stream and that the tables don't have yet.
function recent(old, fresh) {
  const known = new Set([...fresh.children].map((one) => one.dataset.id));
  return [...old.querySelectorAll(".entry.new")].filter((one) => !known.has(one.dataset.id) && Date.now() - Number(one.dataset.came) < 60000);
}

let tag = ""; // of the page that is shown: the server says so when it would be the same
async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 304) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.getElementById("banner")) throw new Error("no page");
    tag = answer.headers.get("ETag") ?? "";
    if (!fresh.body.dataset.refresh) clearInterval(refreshing); // what it waited for is there
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const one = fresh.getElementById(old.id);
      if (one) replace(old, document.adoptNode(one));
    }
    drawAll(true);
  } catch {
    tag = "";
    const told = document.createElement("p");
    told.className = "banner down";
    told.setAttribute("role", "alert");
    told.textContent = "The console doesn't answer: this page shows its last answer.";
    banner.replaceChildren(told);
    document.getElementById("banner").replaceChildren(told);
  }
}
const refreshing = every ? setInterval(refresh, every) : 0;

// --- entries as they come ---

const MOST_ENTRIES = 60;
const streaming = document.querySelector("[data-stream]");
if (streaming && every) {
  const source = new EventSource(streaming.dataset.stream);
  source.addEventListener("entry", (event) => {
    const told = JSON.parse(event.data);
    const place = document.createElement("template");
    place.innerHTML = told.html; // made by the server, where every name is escaped
    const entry = place.content.firstElementChild;
    const feed = document.getElementById("feed");
    [...feed.children].find((one) => one.dataset.id === entry.dataset.id || one.classList.contains("none"))?.remove();
    entry.classList.add("new");
    entry.dataset.came = String(Date.now());
    feed.prepend(entry);
    while (feed.children.length > MOST_ENTRIES) feed.lastElementChild.remove();
  });
  addEventListener("pagehide", () => source.close());
}

// --- charts ---

// The canvas wants a colour, not light-dark(): the browser resolves it on an element.
const resolver = document.body.appendChild(document.createElement("span"));
resolver.hidden = true;
function resolved(name) {
  resolver.style.color = `var(${name})`;
  return getComputedStyle(resolver).color;
}
const LINES = ["--h4", "--h2", "--h1", "--h3", "--h5"];

function told(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "ratio") return `${(100 * value).toFixed(1)} %`;
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${letter}B/s`;
  }
  return `${Number(value.toPrecision(3))} B/s`;
}

function look(line, number) {
  if (line.kind === "mean") return { label: "mean", stroke: resolved("--dim"), width: 2, dash: [] };
  if (line.kind === "max") return { label: "max", stroke: resolved("--text"), width: 1.5, dash: [] };
  if (line.kind === "min") return { label: "min", stroke: resolved("--dim"), width: 1, dash: [3, 3] };
  return { label: line.name, stroke: resolved(LINES[number % LINES.length]), width: 1.5, dash: [] };
}

function showLegend(place, series, data, index, unit) {
  const keys = series.slice(1).map((one, number) => {
    const key = document.createElement("span");
    key.className = "key";
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 14 8");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", "M0 4h14");
    line.setAttribute("stroke", one.colour);
    line.setAttribute("stroke-width", "2.5");
    if (one.dash.length) line.setAttribute("stroke-dasharray", "3 3");
    svg.append(line);
    const values = data[number + 1];
    let at = index;
    if (at === null || at === undefined) for (at = values.length - 1; at > 0 && values[at] === null; at -= 1);
    const value = document.createElement("b");
    value.textContent = told(values[at], unit);
    key.append(svg, document.createTextNode(one.label), value);
    return key;
  });
  place.replaceChildren(...keys);
}

function draw(figure, chart) {
  figure.querySelector(".uplot")?.remove();
  const looks = chart.lines.map((line) => ({ line }));
  let number = 0;
  for (const one of looks) Object.assign(one, look(one.line, one.line.kind === "one" ? number++ : 0));
  const data = [chart.times_ms.map((at) => at / 1000), ...chart.lines.map((line) => line.values)];
  const series = [{}, ...looks.map((one) => ({ label: one.label, stroke: one.stroke, colour: one.stroke, width: one.width, dash: one.dash, points: { show: false } }))];
  const legend = figure.querySelector(".legend");
  const axis = { stroke: resolved("--dim"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const marks = chart.marks;
  const nearest = (plot, left) => {
    let best = null;
    for (const mark of marks) {
      const away = Math.abs(plot.valToPos(mark.at_ms / 1000, "x") - left);
      if (away < 8 && (best === null || away < best.away)) best = { away, mark };
    }
    return best?.mark ?? null;
  };
  const plot = new uPlot({
    width: figure.clientWidth, height: 216, legend: { show: false }, series, tzDate: (at) => inZone(1000 * at),
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { range: [data[0][0], data[0][data[0].length - 1]] }, y: { range: (_, least, greatest) => [0, (greatest || (chart.unit === "ratio" ? 0.1 : 1)) * 1.08] } },
    axes: [{ ...axis, values: clocks, space: 64, size: 44, label: zone, labelSize: 16, labelGap: 0, labelFont: axis.font }, { ...axis, size: chart.unit === "ratio" ? 56 : 82, values: (_, ticks) => ticks.map((one) => (chart.unit === "ratio" ? `${Number((100 * one).toFixed(1))} %` : told(one, chart.unit))) }],
    hooks: {
      setCursor: [(self) => {
        showLegend(legend, series, data, self.cursor.idx, chart.unit);
        const mark = self.cursor.left >= 0 ? nearest(self, self.cursor.left) : null;
        self.over.style.cursor = mark ? "pointer" : "";
        const way = mark && `${mark.source} → ${mark.destination ?? "no broker"}`;
        self.over.title = mark ? `${mark.kind} ${mark.bundle}: ${way}: ${mark.ended}` : "";
      }],
      draw: [(self) => {
        const { ctx, bbox } = self;
        ctx.save();
        const size = 5 * devicePixelRatio;
        for (const mark of marks) {
          const moved = mark.outcome === null || mark.outcome === "confirmed";
          ctx.fillStyle = resolved(moved ? "--accent" : "--down");
          const x = self.valToPos(mark.at_ms / 1000, "x", true), y = bbox.top + bbox.height;
          ctx.beginPath();
          ctx.moveTo(x, y - 1.6 * size);
          ctx.lineTo(x + size, y);
          ctx.lineTo(x - size, y);
          ctx.fill();
        }
        ctx.restore();
      }],
    },
  }, data, figure);
  plot.over.addEventListener("click", () => {
    const mark = nearest(plot, plot.cursor.left);
    if (mark) location.href = `/decision?id=${encodeURIComponent(mark.decision_id)}`;
  });
  figure.plot = plot;
  showLegend(legend, series, data, null, chart.unit);
}

// All times are told in the server's zone, as the page's own are, and never in the browser's.
const zone = document.body.dataset.zone;
const offset = /^([+-])(\d\d):(\d\d)$/.exec(zone);
const inZone = (ms) => offset
  ? uPlot.tzDate(new Date(ms + Number(`${offset[1]}1`) * (60 * offset[2] + Number(offset[3])) * 60000), "UTC")
  : uPlot.tzDate(new Date(ms), zone);
const dayOf = (at) => `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`;

// Times of day; the date below the first one of each day that isn't today.
function clocks(plot, ticks) {
  const span = plot.scales.x.max - plot.scales.x.min, today = dayOf(inZone(Date.now() + skew));
  let before = today;
  return ticks.map((one) => {
    const at = inZone(1000 * one), two = (value) => String(value).padStart(2, "0");
    const hours = `${two(at.getHours())}:${two(at.getMinutes())}`;
    const told = span < 600 ? `${hours}:${two(at.getSeconds())}` : hours, day = dayOf(at);
    const changed = day !== before;
    before = day;
    return changed ? `${told}\n${day}` : told;
  });
}

async function drawAll(anew = false) {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (anew || !figure.figures) {
      const answer = await fetch(figure.dataset.chart);
      if (!answer.ok) continue;
      figure.figures = await answer.json();
    }
    draw(figure, figure.figures);
  }
}
drawAll();
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 150); });

// --- keys ---

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") { event.preventDefault(); document.getElementById("q").focus(); }
  if (event.key === "g") location.href = "/";
  if (event.key === "t") switchTheme();
  if (event.key === "j" || event.key === "k") {
    const names = [...document.querySelectorAll("main tbody td:first-child a.name, main .entry .what > a:first-child")];
    const at = names.indexOf(document.activeElement);
    names[Math.min(names.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))]?.focus();
  }
});
