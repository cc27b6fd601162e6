"use strict";
// Draws the charts and the heat map of a page. console.js, which comes first, has the page's clock,
// zone and theme.

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
    others: { label: line.name, colour: "--dim", width: 1.5, dash: [2, 3] },
    limit: { label: line.name, colour: "--text", width: 1.5, dash: [9, 5] },
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

function formatMoment(ms) {
  const date = toServerZone(ms);
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(":");
  return `${dayOf(date)} ${time} ${zone}`;
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
  if (style.dash.length) line.setAttribute("stroke-dasharray", "4 2.5");
  svg.append(line);
  return svg;
}

// The value at an index; without an index, the last known value.
function valueAt(values, index) {
  if (index !== null && index !== undefined) return values[index];
  return values.findLast((value) => value !== null);
}

// A key for each line. While one is hovered, focused or pressed, the other lines are pale.
function buildLegend(figure, styles) {
  const emphasise = (number) => {
    figure.plot.setSeries(number === null ? null : number + 1, { focus: true });
  };
  const showPressed = () => emphasise(figure.pressed ?? null);
  const keys = styles.map((style, number) => {
    const key = document.createElement("button");
    key.type = "button";
    key.className = "key";
    key.setAttribute("aria-pressed", String(figure.pressed === number));
    const name = document.createElement("bdi");
    name.textContent = style.label;
    key.append(buildKeyLine(style), name);
    key.append(document.createElement("b"));
    for (const name of ["mouseenter", "focus"]) key.addEventListener(name, () => emphasise(number));
    for (const name of ["mouseleave", "blur"]) key.addEventListener(name, showPressed);
    key.addEventListener("click", () => {
      figure.pressed = figure.pressed === number ? null : number;
      keys.forEach((other, index) => {
        other.setAttribute("aria-pressed", String(figure.pressed === index));
      });
      showPressed();
    });
    return key;
  });
  const legend = figure.querySelector(".legend");
  const focused = [...legend.children].indexOf(document.activeElement);
  legend.replaceChildren(...keys);
  keys[focused]?.focus();
}

function showLegendValues(figure, index) {
  const { lines, unit } = figure.chart;
  figure.querySelectorAll(".legend .key b").forEach((value, number) => {
    value.textContent = formatFigure(valueAt(lines[number].values, index), unit);
  });
}

// Lines with a value at an index, the highest value first.
function listValues(figure, index) {
  const { lines, unit } = figure.chart;
  return lines
    .map((line, number) => ({ line, style: figure.styles[number], value: line.values[index] }))
    .filter(({ value }) => value !== null && value !== undefined)
    .sort((one, other) => other.value - one.value)
    .map(({ style, value }) => ({ style, text: formatFigure(value, unit) }));
}

function buildTooltip(figure, index, mark) {
  const time = document.createElement("div");
  time.className = "dim";
  time.textContent = formatMoment(figure.chart.times_ms[index]);
  const rows = listValues(figure, index).map(({ style, text }) => {
    const row = document.createElement("div");
    const value = document.createElement("b");
    value.textContent = text;
    const label = document.createElement("bdi");
    label.textContent = style.label;
    row.append(buildKeyLine(style), label, value);
    return row;
  });
  const last = document.createElement("div");
  last.className = "dim";
  last.textContent = mark ? describeMark(mark) : rows.length ? "" : "no data";
  return [time, ...rows, last];
}

function showTooltip(figure, plot, mark) {
  const { tooltip } = figure;
  const { left, idx } = plot.cursor;
  tooltip.hidden = idx === null || idx === undefined || left < 0;
  if (tooltip.hidden) return;
  tooltip.replaceChildren(...buildTooltip(figure, idx, mark));
  const isRight = left > plot.over.clientWidth / 2;
  const place = isRight ? left - tooltip.offsetWidth - 12 : left + 12;
  const last = plot.over.clientWidth - tooltip.offsetWidth;
  tooltip.style.left = `${Math.max(0, Math.min(place, last))}px`;
}

// The chart as a slider through time: its text is what the cursor shows.
function describeMoment(figure, plot) {
  const { idx, left } = plot.cursor;
  if (idx === null || idx === undefined) return;
  const values = listValues(figure, idx).map(({ style, text }) => `${style.label} ${text}`);
  const mark = findMark(plot, figure.chart.marks, left);
  const time = formatMoment(figure.chart.times_ms[idx]);
  const texts = [time, ...(values.length ? values : ["no data"])];
  if (mark) texts.push(describeMark(mark));
  plot.root.setAttribute("aria-valuenow", idx);
  plot.root.setAttribute("aria-valuetext", texts.join(", "));
}

const CURSOR_KEYS = {
  ArrowLeft: (index) => index - 1,
  ArrowRight: (index) => index + 1,
  Home: () => 0,
  End: (index, last) => last,
};

function moveCursor(figure, plot, index) {
  const last = figure.chart.times_ms.length - 1;
  const bounded = Math.min(last, Math.max(0, index));
  const left = plot.valToPos(figure.chart.times_ms[bounded] / 1000, "x");
  plot.setCursor({ left, top: plot.over.clientHeight / 2 });
  describeMoment(figure, plot);
}

function openMark(figure, plot) {
  const mark = plot.cursor.left >= 0 ? findMark(plot, figure.chart.marks, plot.cursor.left) : null;
  if (mark) location.assign(`/decision?id=${encodeURIComponent(mark.decision_id)}`);
}

function addKeys(figure, plot) {
  const { root } = plot;
  root.tabIndex = 0;
  root.setAttribute("role", "slider");
  root.setAttribute("aria-label", `${figure.getAttribute("aria-label")}: arrow keys move in time`);
  root.setAttribute("aria-valuemin", 0);
  root.setAttribute("aria-valuemax", figure.chart.times_ms.length - 1);
  root.setAttribute("aria-valuenow", figure.chart.times_ms.length - 1);
  root.setAttribute("aria-valuetext", "not moved yet");
  root.addEventListener("keydown", (event) => {
    if (event.key === "Enter") openMark(figure, plot);
    if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
    const next = CURSOR_KEYS[event.key];
    if (!next) return;
    event.preventDefault();
    const last = figure.chart.times_ms.length - 1;
    moveCursor(figure, plot, next(plot.cursor.idx ?? last + 1, last));
  });
  root.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
}

// Shows the selected range alone; its address can be shared, and the browser goes back from it.
function zoom(plot) {
  const { left, width } = plot.select;
  const address = new URL(location.href);
  for (const name of ["span", "end"]) address.searchParams.delete(name);
  address.searchParams.set("from", Math.round(1000 * plot.posToVal(left, "x")));
  address.searchParams.set("to", Math.round(1000 * plot.posToVal(left + width, "x")));
  location.assign(address);
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
    const colour = mark.dry_run ? "--dim" : isCarriedOut ? "--accent" : "--down";
    ctx.fillStyle = resolveColour(colour);
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

// Shades times without loads.
function drawGaps({ ctx, bbox, valToPos }, gaps) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (const gap of gaps) {
    const begin = Math.max(bbox.left, valToPos(gap.begin_ms / 1000, "x", true));
    const end = Math.min(bbox.left + bbox.width, valToPos(gap.end_ms / 1000, "x", true));
    ctx.fillStyle = resolveColour("--idle-ground");
    ctx.fillRect(begin, bbox.top, end - begin, bbox.height);
    if (end - begin < 56 * devicePixelRatio) continue;
    ctx.fillStyle = resolveColour("--idle");
    ctx.fillText("no data", (begin + end) / 2, bbox.top + bbox.height / 2);
  }
  ctx.restore();
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

const NARROW_PX = 600;
const HEIGHT_PX = 300;
const NARROW_HEIGHT_PX = 220;
const MIN_DRAG_PX = 6;

function buildOptions(figure) {
  const { lines, marks, unit, times_ms: times } = figure.chart;
  const emptyHeight = unit === "ratio" ? 0.1 : 1;
  const width = figure.clientWidth;
  const canZoom = "zoom" in figure.dataset;
  return {
    width,
    height: width < NARROW_PX ? NARROW_HEIGHT_PX : HEIGHT_PX,
    padding: [null, 28, null, null], // room for half of the last time
    legend: { show: false },
    series: [{}, ...figure.styles.map((style) => ({ ...style, points: { show: false } }))],
    tzDate: (seconds) => toServerZone(1000 * seconds),
    focus: { alpha: 0.2 },
    cursor: { y: false, drag: { x: canZoom, y: false, setScale: false, dist: MIN_DRAG_PX } },
    scales: {
      x: { range: [times[0] / 1000, times.at(-1) / 1000] },
      y: { range: (_, min, max) => [0, (max || emptyHeight) * 1.08] },
    },
    axes: buildAxes(unit),
    hooks: {
      setCursor: [(plot) => {
        const mark = plot.cursor.left >= 0 ? findMark(plot, marks, plot.cursor.left) : null;
        showLegendValues(figure, plot.cursor.idx);
        plot.over.style.cursor = mark ? "pointer" : "";
        showTooltip(figure, plot, mark);
      }],
      setSelect: [(plot) => {
        if (plot.select.width >= MIN_DRAG_PX) zoom(plot);
      }],
      drawClear: [(plot) => drawGaps(plot, figure.chart.gaps)],
      draw: [(plot) => drawMarks(plot, marks)],
    },
  };
}

function drawChart(figure) {
  const { chart, plot: old } = figure;
  const isFocused = old !== undefined && document.activeElement === old.root;
  const cursorMs = isFocused && old.cursor.idx !== null ? 1000 * old.data[0][old.cursor.idx] : NaN;
  old?.destroy();
  figure.styles = [];
  let number = 0; // of brokers' and bundles' lines, which take colours in turn
  for (const line of chart.lines) {
    figure.styles.push(buildStyle(line, line.kind === "single" ? number++ : 0));
  }
  const data = [chart.times_ms.map((ms) => ms / 1000), ...chart.lines.map((line) => line.values)];
  figure.tooltip = document.createElement("div");
  figure.tooltip.className = "tooltip";
  figure.tooltip.hidden = true;
  const plot = new uPlot(buildOptions(figure), data, figure);
  plot.over.append(figure.tooltip);
  plot.over.addEventListener("click", () => openMark(figure, plot));
  figure.plot = plot;
  addKeys(figure, plot);
  buildLegend(figure, figure.styles);
  showLegendValues(figure, null);
  const note = figure.parentElement.querySelector(".chart-note");
  if (note) note.textContent = chart.note;
  if (figure.pressed !== undefined && figure.pressed !== null) {
    plot.setSeries(figure.pressed + 1, { focus: true });
  }
  if (isFocused) plot.root.focus();
  const index = chart.times_ms.findIndex((ms) => ms >= cursorMs);
  if (index >= 0) moveCursor(figure, plot, index);
}

async function drawCharts(isRefresh = false) {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (isRefresh || !figure.chart) {
      const answer = await fetch(figure.dataset.chart);
      if (!answer.ok) continue;
      figure.chart = await answer.json();
    }
    drawChart(figure);
  }
}
drawCharts();

let resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(drawCharts, 150);
});

// --- the heat map ---

const heatGrid = document.querySelector(".heat-grid");
const heatValue = document.getElementById("heat-value");

function describeCell(cell) {
  const times = cell.closest("table").tHead.rows[0].cells;
  const at = Date.parse(times[cell.cellIndex].querySelector("time").dateTime);
  const texts = [
    cell.parentElement.cells[0].textContent,
    formatMoment(at),
    cell.textContent === "–" ? "no data" : `${cell.textContent} %`,
  ];
  const { moves } = cell.dataset;
  if (moves) texts.push(`${moves} ${moves === "1" ? "move" : "moves"}`);
  return texts.join(", ");
}

function chooseCell(cell) {
  heatGrid.querySelector(".chosen")?.classList.remove("chosen");
  cell.classList.add("chosen");
  heatValue.textContent = describeCell(cell);
}

const CELL_STEPS = {
  Home: [0, -Infinity],
  End: [0, Infinity],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

function moveCell([rowStep, columnStep]) {
  const rows = [...heatGrid.querySelectorAll("tbody tr:has(.cell)")];
  const chosen = heatGrid.querySelector(".chosen");
  if (!chosen) {
    chooseCell(rows[0].querySelector(".cell"));
    return;
  }
  const row = rows[rows.indexOf(chosen.parentElement) + rowStep];
  if (!row) return;
  const cells = [...row.querySelectorAll(".cell")];
  const first = cells[0].cellIndex;
  const place = Math.min(cells.length - 1, Math.max(0, chosen.cellIndex - first + columnStep));
  chooseCell(cells[place]);
}

function openBroker(cell) {
  cell?.parentElement.querySelector("a").click();
}

if (heatGrid) {
  heatGrid.addEventListener("mouseover", ({ target }) => {
    if (target.matches("td.cell")) chooseCell(target);
  });
  heatGrid.addEventListener("click", ({ target }) => {
    if (target.matches("td.cell")) openBroker(target);
  });
  heatGrid.addEventListener("keydown", (event) => {
    if (event.target !== heatGrid) return;
    if (event.key === "Enter") openBroker(heatGrid.querySelector(".chosen"));
    const step = CELL_STEPS[event.key];
    if (!step || !heatGrid.querySelector("td.cell")) return;
    event.preventDefault();
    moveCell(step);
  });
}
