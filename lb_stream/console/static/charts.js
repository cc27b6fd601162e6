"use strict";
// Draws the charts of a page. console.js, which comes first, has the page's clock, zone and theme.

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
