// Renews the page in place while its box is checked, draws curves, copies bodies, and offers the browser's own zone.
// Without this script every page works as well.
"use strict";

// The texts in the page's language, if it is not English.
const texts = JSON.parse(document.documentElement.dataset.texts || "{}");
const said = (key, values = {}) => (texts[key] || key).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const main = document.getElementById("main");
const renewBox = document.getElementById("renew");
const zoneForm = document.getElementById("zone");
const renewal = document.getElementById("renewal");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A form, a question and an error stay as they are.
const renewSeconds = Number(main.dataset.renewSeconds || 0);
const LINES = 6;
const AXIS_FONT = "13px system-ui, sans-serif";

function clock(seconds, withSeconds) {
  const zone = document.documentElement.dataset.zone;
  const offset = /^UTC([+-])(\d\d):(\d\d)$/.exec(zone);
  const ahead = offset ? (offset[1] === "+" ? 60 : -60) * (60 * Number(offset[2]) + Number(offset[3])) : 0;
  const form = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const text = new Date((seconds + ahead) * 1e3).toLocaleTimeString("en-GB", { ...form, timeZone: offset ? "UTC" : zone });
  return withSeconds ? text : text.slice(0, 5);
}

async function draw(place) {
  const answer = await fetch(place.dataset.from).catch(() => null);
  if (!answer || !answer.ok) return;
  const { seconds, lines } = await answer.json();
  const names = Object.keys(lines);
  if (!seconds.length) return;
  place.textContent = "";
  // At least half a minute: the first point alone would be drawn on an axis of years, in two minutes it looks lost.
  const latest = seconds[seconds.length - 1];
  const earliest = Math.min(seconds[0], latest - 30);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const unit = place.dataset.unit;
  const shown = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }));
  const showLatest = (chart) => {
    if (chart.cursor.idx === null || chart.cursor.idx === undefined) chart.setLegend({ idx: seconds.length - 1 }, false);
  };
  const chart = new uPlot(
    {
      width: Math.min(place.clientWidth, 1100),
      height: 240,
      scales: {
        x: { range: () => [earliest, latest] },
        y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] },
      },
      axes: [
        { ...axis, space: place.clientWidth < 600 ? 60 : 75, size: 36, label: said("time ({zone})", { zone: document.documentElement.dataset.zone }), labelSize: 22, labelFont: AXIS_FONT, values: (_, splits, axisIndex, space, step) => splits.map((split) => clock(split, step < 60)) },
        { ...axis, size: 70, label: unit, labelSize: 22, labelFont: AXIS_FONT, values: (_, splits) => splits.map(shown) },
      ],
      series: [
        { label: said("time"), value: (_, value) => (value ? clock(value, true) : "–") },
        ...names.map((name, number) => ({
          label: name,
          stroke: colour(`--line-${(number % LINES) + 1}`),
          width: 2,
          dash: number % 2 ? [8, 5] : [], // lines that lie on each other are both seen
          value: (_, value) => shown(value),
          points: { show: seconds.length < 60, size: 5 },
        })),
      ],
      hooks: { setCursor: [showLatest] },
    },
    [seconds, ...names.map((name) => lines[name])],
    place,
  );
  showLatest(chart);
  place.dataset.points = String(seconds.length);
  place.dataset.seconds = String(latest - earliest);
}

// Loads what draws curves, on pages that have one.
let library = null;
function loadLibrary() {
  const loaded = (element) => new Promise((done) => (element.onload = element.onerror = done));
  const [script, sheet] = [document.createElement("script"), document.createElement("link")];
  [script.src, sheet.href] = document.documentElement.dataset.curves.split(" ");
  sheet.rel = "stylesheet";
  library = Promise.all([loaded(script), loaded(sheet)]);
  document.head.append(sheet, script);
}

async function drawAll() {
  const places = [...main.querySelectorAll(".chart")];
  if (!places.length) return;
  if (!library) loadLibrary();
  await library;
  if (typeof uPlot !== "undefined") await Promise.all(places.map(draw));
}

// What a reader is about to lose: text in a form, a control that is chosen, text that is marked for copying.
function isBusy() {
  const focused = document.activeElement;
  const marked = getSelection();
  return (
    (main.contains(focused) && focused.matches("input, select, textarea, button")) ||
    (!marked.isCollapsed && main.contains(marked.anchorNode)) ||
    [...main.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked) ||
    [...main.querySelectorAll("option")].some((option) => option.selected !== option.defaultSelected && option.selected)
  );
}

function exchange(fresh) {
  const focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const scrolled = [...main.querySelectorAll(".wide, pre")].map((box) => [box.scrollLeft, box.scrollTop]);
  const opened = [...main.querySelectorAll("details")].map((details) => details.open);
  main.replaceChildren(...document.importNode(fresh, true).childNodes);
  [...main.querySelectorAll(".wide, pre")].forEach((box, number) => {
    [box.scrollLeft, box.scrollTop] = scrolled[number] || [0, 0];
  });
  [...main.querySelectorAll("details")].forEach((details, number) => (details.open = opened[number] ?? details.open));
  if (focused) [...main.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focused)?.focus();
}

// Returns a page as text, or null, which is said beside the box.
async function fetched(address) {
  const answer = await fetch(address).catch(() => null);
  const text = answer && answer.ok ? await answer.text().catch(() => null) : null;
  const why = answer ? said("the page's answer is {status}", { status: answer.status }) : said("no answer");
  renewal.textContent = text === null ? said("not renewed at {time}: {why}", { time: clock(Date.now() / 1e3, true), why }) : "";
  return text;
}

async function renew() {
  if (!renewSeconds || !renewBox.checked || document.hidden || isBusy()) return;
  const text = await fetched(location.href);
  if (text === null) return;
  if (!renewBox.checked || isBusy()) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  if (!fresh) return;
  const heights = [...main.querySelectorAll(".chart")].map((place) => place.offsetHeight);
  exchange(fresh);
  // Keeps the height until the curve is drawn again, so that nothing below it jumps.
  [...main.querySelectorAll(".chart")].forEach((place, number) => (place.style.minHeight = `${heights[number] || 0}px`));
  await drawAll();
}

// Puts what came since on top of the tail, each message once. Beyond this many the oldest leave.
const TAIL_ROWS = 1000;
async function follow() {
  const tail = document.getElementById("tail");
  let isBehind = false;
  if (!document.hidden && !document.getElementById("pause").checked) {
    const text = await fetched(tail.dataset.next);
    const fresh = text === null ? null : new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (fresh) {
      const rows = main.querySelector(".messages tbody");
      rows.prepend(...document.importNode(fresh.querySelector(".messages tbody"), true).rows);
      while (rows.rows.length > TAIL_ROWS) rows.lastElementChild.remove();
      const part = document.importNode(fresh.querySelector("#tail"), true);
      tail.replaceWith(part);
      isBehind = part.dataset.behind !== "0" && part.dataset.next !== tail.dataset.next;
    }
  }
  setTimeout(follow, isBehind ? 500 : tail.dataset.seconds * 1e3);
}

function remembered(box, name, changed) {
  box.checked = localStorage.getItem(name) === "yes";
  box.addEventListener("change", () => {
    localStorage.setItem(name, box.checked ? "yes" : "no");
    changed();
  });
}

// Without a secure context, as over plain HTTP to another machine, a browser has no clipboard object.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.body.appendChild(document.createElement("textarea"));
  area.value = text;
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error(said("refused"));
}

document.documentElement.classList.add("script");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  button.blur(); // a chosen control would keep the page from renewing itself
  const report = (text) => (document.getElementById("copied").textContent = text);
  try {
    const { copy: selector, copyFrom } = button.dataset;
    const answer = copyFrom ? await fetch(copyFrom) : null;
    if (answer && !answer.ok) throw new Error(said("the page's answer is {status}", { status: answer.status }));
    const text = answer ? await answer.text() : document.querySelector(selector).textContent;
    await copy(text);
    report(said("{characters} characters copied", { characters: text.length.toLocaleString("en") }));
  } catch (error) {
    report(said("not copied: {why}; mark the text, or download the body", { why: error.message }));
  }
});

const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zoneList = zoneForm.elements.zone;
if (ownZone && ![...zoneList.options].some((option) => option.value === ownZone)) {
  zoneList.add(new Option(said("{zone} (this browser's)", { zone: ownZone }), ownZone), 0);
}
zoneList.addEventListener("change", () => {
  zoneForm.elements.back.value = location.pathname + location.search;
  zoneForm.submit();
});

// Chooses the browser's zone at the first visit, and loads the page once more in it.
async function takeOwnZone() {
  const { zone, zoneOpen } = document.documentElement.dataset;
  if (zoneOpen === undefined || !ownZone || ownZone === zone || sessionStorage.getItem("zone") === ownZone) return;
  sessionStorage.setItem("zone", ownZone); // a browser that keeps no cookie is not asked again
  const answer = await fetch(`/zone?zone=${encodeURIComponent(ownZone)}`, { redirect: "manual" }).catch(() => null);
  if (answer && answer.type === "opaqueredirect" && !isBusy()) location.reload();
}

takeOwnZone();
remembered(renewBox, "renew", () => (renewal.textContent = ""));
if (document.getElementById("tail")) follow();
if (renewSeconds) setInterval(renew, renewSeconds * 1e3);
drawAll();
