"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const rowsOf = {};

  // Columns, of which text is coded, become rows.
  const unpack = (columns) => {
    const keys = Object.keys(columns);
    const values = keys.map((key) => {
      const column = columns[key];
      return Array.isArray(column) ? column : column.codes.map((code) => column.words[code]);
    });
    const length = values.length ? values[0].length : 0;
    return Array.from({ length }, (_, i) => Object.fromEntries(keys.map((key, k) => [key, values[k][i]])));
  };
  for (const chart of data.charts) if (chart.rows) rowsOf[chart.name] = unpack(chart.rows);

  // A menu's name leads to what is chosen in it.
  const chosen = (name) => {
    const menu = document.querySelector(`[data-menu="${name}"]`);
    const options = data.menus[name];
    if (!menu) return options;
    if (menu.tagName === "SELECT") return [options[Number(menu.value)]];
    return [...menu.querySelectorAll("input:checked")].map((box) => options[Number(box.value)]);
  };

  // A part of a spec with names and choices in place of what stands for them.
  const filled = (node, names, picked) => {
    if (Array.isArray(node)) return node.map((part) => filled(part, names, picked));
    if (node === null || typeof node !== "object") return node;
    if ("chosen" in node) return picked[node.chosen];
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [
      key, key === "domain" && value === "names" ? names : filled(value, names, picked),
    ]));
  };

  const subtract = (rows, key, first, second) => {
    const place = (row) => JSON.stringify([row.corruption, row.severity]);
    const other = new Map(rows.filter((row) => row[key] === second).map((row) => [place(row), row.value]));
    return rows.filter((row) => row[key] === first && other.has(place(row)))
      .map((row) => ({ ...row, value: row.value - other.get(place(row)) }));
  };

  // What figures.resolve does in Python.
  const resolve = (chart, width) => {
    let rows = rowsOf[chart.rowsOf || chart.name];
    let spec = chart.spec;
    let bound = 1;
    const filters = { ...chart.one, ...chart.several };
    for (const [key, menu] of Object.entries(filters)) {
      if (key in chart.minus) continue;
      const values = new Set(chosen(menu));
      rows = rows.filter((row) => values.has(row[key]));
    }
    for (const [key, menu] of Object.entries(chart.minus)) {
      rows = subtract(rows, key, chosen(chart.one[key])[0], chosen(menu)[0]);
      bound = Math.max(...rows.map((row) => Math.abs(row.value)), 0) || 1;
      spec = { ...spec, params: [{ name: "bound", value: bound }] };
    }
    const names = Object.values(chart.several).flatMap(chosen);
    const picked = Object.fromEntries(Object.entries(chart.one).map(([key, menu]) => [key, chosen(menu)[0]]));
    const longest = Math.max(...names.map((name) => name.length), 1);
    picked.columns = Math.max(1, Math.floor((width - 60) / Math.min(30 + 7 * longest, 250)));
    picked.sign_format = width < 400 && bound >= 10 ? "+.0f" : "+.1f";
    return { ...filled(spec, names, picked), data: { values: rows } };
  };

  const theme = () => root.dataset.theme || "light";
  const views = {};
  const draw = async (chart) => {
    const box = document.getElementById(chart.name);
    if (!box) return;
    const result = await window.vegaEmbed(box, resolve(chart, box.clientWidth), {
      mode: "vega-lite", renderer: "svg", config: data.themes[theme()], downloadFileName: chart.name,
      tooltip: { theme: theme() }, actions: { export: true, source: false, compiled: false, editor: false },
    });
    if (views[chart.name]) views[chart.name].finalize();
    views[chart.name] = result;
  };
  // One after another: two drawings of one chart at the same time would race.
  let queue = Promise.resolve();
  const drawAll = (charts) => {
    for (const chart of charts) queue = queue.then(() => draw(chart)).catch((error) => console.error(error));
    queue = queue.then(() => { root.dataset.drawn = String(Number(root.dataset.drawn || 0) + 1); });
  };

  document.addEventListener("change", (event) => {
    const menu = event.target.closest("[data-menu]");
    if (!menu) return;
    const name = menu.dataset.menu;
    // The same menu may stand in several sections; they go together.
    for (const twin of document.querySelectorAll(`[data-menu="${name}"]`)) {
      if (twin.tagName === "SELECT") { twin.value = menu.value; continue; }
      const boxes = [...menu.querySelectorAll("input")];
      [...twin.querySelectorAll("input")].forEach((box, i) => { box.checked = boxes[i].checked; });
      const summary = twin.querySelector("summary");
      summary.textContent = summary.textContent.replace(/\(\d+ of/, `(${chosen(name).length} of`);
    }
    drawAll(data.charts.filter((chart) =>
      [chart.one, chart.several, chart.minus].some((part) => Object.values(part).includes(name))));
  });

  // The first columns that fit, or all where the button under the table asked for them. Each pass over the tables only
  // writes or only reads, so that the browser lays the page out twice and not once for every column.
  const fit = (tables) => {
    const states = tables.map((table) => {
      const box = table.parentElement;
      const button = box.nextElementSibling;
      const headers = [...table.tHead.rows[0].cells];
      const open = button.getAttribute("aria-expanded") === "true";
      const count = open ? headers.length : Number(table.dataset.first);
      return { table, box, button, headers, open, count };
    });
    const show = ({ table, count }) => {
      for (const row of table.rows) for (const cell of row.cells) cell.hidden = cell.cellIndex >= count;
    };
    for (const state of states) {
      state.table.classList.toggle("wide", state.count > 10);
      show(state);
    }
    for (const state of states) state.room = state.box.clientWidth;
    for (const state of states) state.widths = state.headers.map((cell) => cell.getBoundingClientRect().width);
    for (const state of states) {
      let [used, fitting] = [0, 0];
      while (fitting < state.count && (used += state.widths[fitting]) <= state.room + 0.5) fitting += 1;
      if (!state.open && fitting < state.count) show(Object.assign(state, { count: Math.max(fitting, 2) }));
      state.button.hidden = !state.open && state.count === state.headers.length;
      state.button.textContent = state.open ? "Show fewer columns" : `Show all ${state.headers.length} columns`;
    }
    const scrolls = states.map(({ box }) => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight);
    states.forEach(({ box }, i) => { // the keyboard need not stop where nothing scrolls
      if (scrolls[i]) box.tabIndex = 0; else box.removeAttribute("tabindex");
    });
  };
  const tables = [...document.querySelectorAll("main table")];
  fit(tables);

  let wide = window.innerWidth;
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (window.innerWidth === wide) return; // a phone's address bar came or went
      wide = window.innerWidth;
      fit(tables);
      drawAll(data.charts);
    }, 200);
  });

  const number = (text) => {
    const found = Number.parseFloat(text.replace("−", "-").replace(/^<\s*/, ""));
    return Number.isNaN(found) ? null : found;
  };
  const sort = (header) => {
    const table = header.closest("table");
    const column = header.cellIndex;
    const way = header.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", way);
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: row.cells[column].textContent.trim() }));
    const numeric = rows.some(({ text }) => number(text) !== null) && column > 0;
    rows.sort((a, b) => {
      if (!numeric) return (way === "ascending" ? 1 : -1) * a.text.localeCompare(b.text);
      const [x, y] = [number(a.text), number(b.text)];
      if (x === null || y === null) return (x === null) - (y === null); // what is missing stays last
      return way === "ascending" ? x - y : y - x;
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
  };
  document.addEventListener("click", async (event) => {
    const header = event.target.closest("thead th");
    if (header && event.target.closest("button")) sort(header);
    if (event.target.matches(".fold")) {
      event.target.setAttribute("aria-expanded", String(event.target.getAttribute("aria-expanded") !== "true"));
      fit([document.getElementById(event.target.getAttribute("aria-controls"))]);
    }
    if (event.target.matches(".copy")) {
      const code = event.target.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
        event.target.textContent = "Copied";
      } catch { // not allowed here: mark it, so that one key copies it
        window.getSelection().selectAllChildren(code);
      }
    }
  });

  const button = document.getElementById("theme");
  const show = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
    drawAll(data.charts);
  };
  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  preferred.addEventListener("change", (event) => show(event.matches ? "dark" : "light"));
  button.addEventListener("click", () => show(theme() === "dark" ? "light" : "dark"));
  show(preferred.matches ? "dark" : "light");

  // Paper is light and has nothing to unfold.
  let before = {};
  window.addEventListener("beforeprint", () => {
    before = { theme: theme(), folded: [...document.querySelectorAll("details:not([open])")] };
    for (const part of before.folded) part.open = true;
    if (before.theme === "dark") show("light");
  });
  window.addEventListener("afterprint", () => {
    for (const part of before.folded) part.open = false;
    if (before.theme === "dark") show("dark");
  });
})();
