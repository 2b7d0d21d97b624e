"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { cells, times, names, told, low, high, places, given, predicted } = data;
  const bytes = Uint8Array.from(atob(data.values), (c) => c.charCodeAt(0));
  const byId = (name) => document.getElementById(name);
  const sigma = byId("sigma"), time = byId("time"), turn = byId("turn"), adaptive = byId("adaptive");
  const BLUE = [0, 114, 178], WHITE = [247, 247, 247], ORANGE = [213, 94, 0];
  const mix = (a, b, w) => a.map((v, i) => Math.round(v + (b[i] - v) * w));
  const colours = Array.from({ length: 256 }, (_, i) =>
    i < 128 ? mix(BLUE, WHITE, i / 127.5) : mix(WHITE, ORANGE, (i - 127.5) / 127.5));
  const ink = () => getComputedStyle(document.body).color;

  const which = () => (adaptive.checked ? names.length - 1 : Number(sigma.value));
  const layer = () => {
    const start = (which() * times.length + Number(time.value)) * cells * cells;
    return bytes.subarray(start, start + cells * cells); // row by row in x, y running fastest
  };

  const small = document.createElement("canvas");
  small.width = small.height = cells;
  const drawMap = (u) => {
    const canvas = byId("map"), pen = canvas.getContext("2d"), size = canvas.width;
    const brush = small.getContext("2d"), image = brush.createImageData(cells, cells);
    for (let i = 0; i < cells; i += 1) for (let j = 0; j < cells; j += 1)
      image.data.set([...colours[u[i * cells + j]], 255], 4 * ((cells - 1 - j) * cells + i));
    brush.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = true;
    pen.drawImage(small, 0, 0, size, size);
    drawLine(pen, u, size);
    drawPoints(pen, size);
  };

  // Where u crosses ½ on the edges of each cell, joined in pairs.
  const drawLine = (pen, u, size) => {
    const step = size / cells, half = 127.5;
    pen.strokeStyle = "#20262e"; pen.lineWidth = 2; pen.beginPath();
    for (let i = 0; i + 1 < cells; i += 1) for (let j = 0; j + 1 < cells; j += 1) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      const cuts = [];
      corners.forEach(([a, b], k) => {
        const [c, d] = corners[(k + 1) % 4];
        const one = u[a * cells + b], two = u[c * cells + d];
        if ((one > half) === (two > half)) return;
        const w = (half - one) / (two - one);
        cuts.push([(a + w * (c - a) + 0.5) * step, size - (b + w * (d - b) + 0.5) * step]);
      });
      for (let k = 0; k + 1 < cuts.length; k += 2) { pen.moveTo(...cuts[k]); pen.lineTo(...cuts[k + 1]); }
    }
    pen.stroke();
  };

  const drawPoints = (pen, size) => {
    const now = places[Number(time.value)], answers = predicted[which()];
    now.forEach(([x, y], k) => {
      const right = answers[k] === given[k];
      const px = ((x - low) / (high - low)) * size, py = size - ((y - low) / (high - low)) * size, r = right ? 5 : 7;
      pen.beginPath();
      if (given[k] === "0") pen.arc(px, py, r, 0, 2 * Math.PI);
      else { pen.moveTo(px, py - 1.2 * r); pen.lineTo(px + 1.1 * r, py + 0.9 * r); pen.lineTo(px - 1.1 * r, py + 0.9 * r); pen.closePath(); }
      pen.fillStyle = answers[k] === "1" ? "rgb(213,94,0)" : "rgb(0,114,178)";
      pen.strokeStyle = right ? "#fff" : "#000"; pen.lineWidth = right ? 1 : 3;
      pen.fill(); pen.stroke();
    });
  };

  // Quads from the far to the near side, seen from above at the angle of the slider.
  const drawRelief = (u) => {
    const canvas = byId("relief"), pen = canvas.getContext("2d"), size = canvas.width, skip = 2;
    const angle = (Number(turn.value) * Math.PI) / 180, c = Math.cos(angle), s = Math.sin(angle);
    const project = (i, j) => {
      const x = i / (cells - 1) - 0.5, y = j / (cells - 1) - 0.5;
      const across = c * x - s * y, away = s * x + c * y;
      return [size * (0.5 + 0.66 * across), size * (0.5 - 0.38 * away - 0.32 * (u[i * cells + j] / 255 - 0.5)), away];
    };
    const quads = [];
    for (let i = 0; i + skip < cells; i += skip) for (let j = 0; j + skip < cells; j += skip) {
      const corners = [[i, j], [i + skip, j], [i + skip, j + skip], [i, j + skip]].map(([a, b]) => project(a, b));
      quads.push({ corners, away: corners.reduce((sum, p) => sum + p[2], 0), value: u[(i + 1) * cells + j + 1] });
    }
    quads.sort((a, b) => b.away - a.away);
    pen.clearRect(0, 0, size, size);
    pen.lineWidth = 0.6;
    for (const { corners, value } of quads) {
      pen.beginPath();
      corners.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.fillStyle = `rgb(${colours[value]})`; pen.strokeStyle = `rgb(${colours[value].map((v) => Math.round(0.8 * v))})`;
      pen.fill(); pen.stroke();
    }
    pen.fillStyle = ink(); pen.font = "16px system-ui, sans-serif";
    pen.fillText("height: u from 0 to 1", 12, size - 12);
  };

  const draw = () => {
    sigma.disabled = adaptive.checked;
    byId("sigma-value").textContent = adaptive.checked ? "σ(x)" : names[Number(sigma.value)];
    byId("time-value").textContent = times[Number(time.value)].toFixed(1);
    byId("turn-value").textContent = `${turn.value}°`;
    sigma.setAttribute("aria-valuetext", names[Number(sigma.value)]);
    time.setAttribute("aria-valuetext", `t = ${times[Number(time.value)].toFixed(1)}`);
    byId("told").textContent = told[which()];
    const u = layer();
    drawMap(u);
    drawRelief(u);
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  };
  for (const control of [sigma, time, turn, adaptive]) control.addEventListener("input", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
