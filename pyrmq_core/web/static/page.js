// Renews the page in place while its box is checked, and draws the lag. Without this script every page works as well.
"use strict";

const main = document.getElementById("main");
const box = document.getElementById("renew");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function drawLag() {
  const place = document.getElementById("lag");
  if (!place || typeof uPlot === "undefined") return;
  const answer = await fetch(place.dataset.from);
  if (!answer.ok) return;
  const lag = await answer.json();
  place.textContent = "";
  const points = lag.seconds.length;
  if (points) {
    // The first point alone would be drawn on an axis of years.
    lag.seconds.unshift(lag.seconds[0] - 120);
    lag.messages.unshift(null);
  }
  const line = { stroke: colour("--quiet"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  new uPlot(
    {
      width: Math.max(320, Math.min(place.clientWidth, 1100)),
      height: 240,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
      scales: {
        y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] },
      },
      axes: [line, { ...line, size: 80 }],
      series: [{ label: "UTC" }, { label: "messages behind", stroke: colour("--bar"), width: 2, points: { show: true, size: 6 } }],
    },
    [lag.seconds, lag.messages],
    place,
  );
  place.dataset.points = String(points);
}

async function renew() {
  if (!box.checked || document.hidden || main.contains(document.activeElement)) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer || !answer.ok || !box.checked) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  main.replaceChildren(...document.importNode(fresh, true).childNodes);
  await drawLag();
}

box.checked = sessionStorage.getItem("renew") === "yes";
box.addEventListener("change", () => sessionStorage.setItem("renew", box.checked ? "yes" : "no"));
setInterval(renew, Number(main.dataset.renewSeconds) * 1e3);
drawLag();
