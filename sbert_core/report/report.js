"use strict";
// Texts of the corpus are only written to textContent, so that markup in them has no effect.
(() => {
  const $ = (id) => document.getElementById(id);
  const { clusters, points, pairs } = JSON.parse($("data").textContent);
  const PAGE = 50;
  const MAX_SHOWN_CHARS = 600; // a longer text is collapsed
  let dark = false;

  const byNumber = new Map(clusters.map((cluster) => [cluster.n, cluster]));
  const count = (number) => number.toLocaleString("en-US");
  const rowsOf = (number) => `${count(number)} ${number === 1 ? "row" : "rows"}`;
  const measure = (value) => (value === null ? "–" : value.toFixed(3));
  const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const nameOf = (n) => byNumber.get(n)?.name ?? (n === NOISE ? "No cluster" : `Cluster ${n}`);

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") element.textContent = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  function makeText(text) {
    if (text.length <= MAX_SHOWN_CHARS) return make("div", { class: "text", dir: "auto", text });
    const title = "Click to show all or less of the text";
    const element = make("div", { class: "text long", dir: "auto", tabindex: 0, title, text });
    const unfold = (event) => {
      event.stopPropagation();
      element.classList.toggle("long");
    };
    element.addEventListener("click", unfold);
    element.addEventListener("keydown", (event) => event.key === "Enter" && unfold(event));
    return element;
  }

  function paintDot(dot, n) {
    dot.className = `dot ${shapeOf(n)}`;
    dot.style.color = `rgb(${colourOf(n, dark).join(" ")})`;
    return dot;
  }

  // ---- the selection, by a click or by the search box ----

  let selected = null;
  let matches = null; // numbers of the clusters that match the search, or null: no search
  const isLit = (n) => (selected !== null ? n === selected : matches === null || matches.has(n));

  function select(n, { show = false } = {}) {
    const before = selected;
    selected = n === before ? null : n;
    for (const number of new Set([before, selected])) {
      if (number === null || !byNumber.has(number)) continue;
      if (number === selected) open.add(number);
      else open.delete(number);
      updateRow(number);
    }
    const chip = $("selection");
    if (chip) {
      chip.hidden = selected === null;
      if (selected !== null) {
        paintDot(chip.querySelector(".dot"), selected);
        $("selection-name").textContent = nameOf(selected);
        $("selection-size").textContent = byNumber.has(selected) ? rowsOf(byNumber.get(selected).size) : "";
      }
    }
    if (show && selected !== null) showRow(selected);
    map?.schedule();
  }

  // ---- the table of clusters ----

  const table = document.querySelector("#cluster-panel table");
  const panel = $("cluster-panel");
  const rows = new Map(); // cluster number -> its <tbody>: the row, and its details when open
  const open = new Set();
  const largest = clusters.reduce((size, cluster) => Math.max(size, cluster.n === NOISE ? 0 : cluster.size), 1);
  // Computed at the first search and kept, so that the page opens fast.
  const haystack = (c) => (c.haystack ??= fold([c.name, ...c.terms, ...c.exemplars].join("\n")));
  let sorting = { key: "size", down: true };
  let listed = []; // the clusters found, sorted; the first `shown` are in the page
  let shown = 0;

  function makeLink(n) {
    const text = nameOf(n);
    const link = make("a", { href: `#cluster-${n}`, dir: "auto", text, title: text, "data-role": "link" });
    link.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (selected !== n) select(n, { show: true });
      rows.get(n)?.querySelector("button").focus({ preventScroll: true });
    });
    return link;
  }

  function makeDetails(cluster) {
    const cell = make("td", { class: "details", colspan: 5 });
    const list = make("ul", {}, ...cluster.exemplars.map((text) => make("li", {}, makeText(text))));
    cell.append(cluster.exemplars.length ? list : make("p", { text: "No examples." }));
    if (byNumber.has(cluster.parent)) cell.append(make("p", { text: "Part of " }, makeLink(cluster.parent)));
    cell.addEventListener("click", (event) => event.stopPropagation());
    return make("tr", {}, cell);
  }

  function makeRow(cluster) {
    const isOpen = open.has(cluster.n);
    const chosen = cluster.n === selected;
    const name = make("button", {
      type: "button", dir: "auto", "aria-pressed": chosen, "data-role": "name", text: cluster.name,
    });
    const unfold = make("button", {
      type: "button", class: "unfold", "aria-expanded": isOpen, "data-role": "unfold",
      "aria-label": `Examples of ${cluster.name}`,
    });
    unfold.addEventListener("click", (event) => {
      event.stopPropagation();
      if (!open.delete(cluster.n)) open.add(cluster.n);
      updateRow(cluster.n);
    });
    const bar = make("span", { class: "amount" });
    bar.style.width = `${Math.min(100, (100 * cluster.size) / largest)}%`;
    const measures = ["cohesion", "separation"].map((key) => make("td", {
      class: cluster[key] === null ? "c-measure nothing" : "c-measure", "data-label": key, text: measure(cluster[key]),
    }));
    const near = cluster.nearest !== null && cluster.nearest !== cluster.n;
    const state = `${chosen ? "chosen " : ""}${isOpen ? "open" : ""}`;
    const body = make("tbody", { class: state, "data-cluster": cluster.n },
      make("tr", { class: "main" },
        make("td", { class: "c-name" },
          make("div", { class: "name" }, paintDot(make("span"), cluster.n), name, unfold,
            make("div", { class: "terms", dir: "auto", text: cluster.terms.join(", ") }))),
        make("td", { class: "c-size", text: count(cluster.size) }, bar),
        ...measures,
        make("td", { class: near ? "c-near" : "c-near nothing", "data-label": "nearest" },
          near ? makeLink(cluster.nearest) : "–")));
    if (isOpen) body.append(makeDetails(cluster));
    // A click anywhere in the row selects it; keyboards and screen readers use its button.
    body.addEventListener("click", () => {
      if (String(window.getSelection())) return; // the user is selecting text
      select(cluster.n);
    });
    return body;
  }

  /** Redraws one row; a selected cluster that is not listed yet is pinned above the others. */
  function updateRow(n) {
    if (!table) return;
    const old = rows.get(n);
    const pinned = old ? old.classList.contains("pinned") : true;
    if (pinned && n !== selected) {
      old?.remove();
      rows.delete(n);
      return;
    }
    const body = makeRow(byNumber.get(n));
    body.classList.toggle("pinned", pinned);
    rows.set(n, body);
    if (!old) return table.tHead.after(body);
    const role = old.contains(document.activeElement) ? document.activeElement.dataset.role : null;
    old.replaceWith(body);
    if (role) body.querySelector(`[data-role="${role}"]`)?.focus({ preventScroll: true });
  }

  function showRow(n) {
    const body = rows.get(n);
    if (!body) return;
    const own = panel.scrollHeight > panel.clientHeight + 1 && getComputedStyle(panel).overflowY !== "visible";
    if (!own) return body.scrollIntoView({ block: "nearest" });
    const top = body.offsetTop - table.tHead.offsetHeight;
    if (top < panel.scrollTop) panel.scrollTop = top;
    else if (body.offsetTop + body.offsetHeight > panel.scrollTop + panel.clientHeight) panel.scrollTop = top - 60;
  }

  function showMoreRows() {
    for (const cluster of listed.slice(shown, shown + PAGE)) {
      rows.get(cluster.n)?.remove(); // if it was pinned
      const body = makeRow(cluster);
      rows.set(cluster.n, body);
      table.append(body);
    }
    shown = Math.min(shown + PAGE, listed.length);
    $("cluster-more").hidden = shown === listed.length;
    $("cluster-more").textContent = `Show more (${count(shown)} of ${count(listed.length)})`;
    $("cluster-none").hidden = listed.length > 0;
  }

  function listClusters() {
    if (!table) return;
    const value = (cluster) => {
      if (sorting.key === "nearest") return cluster.nearest === null ? null : fold(nameOf(cluster.nearest));
      return sorting.key === "name" ? fold(cluster.name) : cluster[sorting.key];
    };
    const compare = (a, b) => {
      if ((a.n === NOISE) !== (b.n === NOISE)) return a.n === NOISE ? 1 : -1; // noise and missing values come last
      const [one, two] = [value(a), value(b)];
      if (one === two) return a.n - b.n;
      if (one === null || two === null) return one === null ? 1 : -1;
      const order = typeof one === "string" ? one.localeCompare(two, "en", { numeric: true }) : one - two;
      return sorting.down ? -order : order;
    };
    listed = clusters.filter((cluster) => matches === null || matches.has(cluster.n)).sort(compare);
    for (const body of rows.values()) body.remove();
    rows.clear();
    shown = 0;
    panel.scrollTop = 0;
    showMoreRows();
    if (selected !== null && byNumber.has(selected) && !rows.has(selected)) updateRow(selected);
    for (const button of table.tHead.querySelectorAll("button")) {
      const cell = button.parentElement;
      if (button.dataset.sort !== sorting.key) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    }
  }

  function findClusters(query) {
    if (selected !== null) select(selected); // the map highlights the selection or the search, not both
    const words = fold(query).split(/\s+/).filter(Boolean);
    const has = (cluster) => words.every((word) => haystack(cluster).includes(word));
    matches = words.length ? new Set(clusters.filter(has).map((cluster) => cluster.n)) : null;
    listClusters();
    const found = matches && [...matches].filter((n) => n !== NOISE).length;
    $("cluster-found").textContent = matches ? ` ${count(found)} ${found === 1 ? "matches" : "match"} the search.` : "";
    map?.schedule();
  }

  // ---- the map ----

  const tooltip = $("tooltip");

  function showTooltip(index, x, y, touched) {
    tooltip.hidden = index < 0;
    if (index < 0) return;
    const [head, text, id] = tooltip.children;
    paintDot(head.firstElementChild, points.cluster[index]);
    head.lastElementChild.textContent = nameOf(points.cluster[index]);
    text.textContent = points.text[index];
    id.textContent = points.id[index];
    const size = tooltip.getBoundingClientRect();
    const above = y - 16 - size.height;
    const below = y + 18 + size.height < window.innerHeight && !(touched && above > 8); // a finger would cover it
    tooltip.style.left = `${Math.max(12, Math.min(x + 14, document.documentElement.clientWidth - size.width - 12))}px`;
    tooltip.style.top = `${Math.max(8, below ? y + 18 : above)}px`;
  }

  function pick(n) {
    // On a narrow page the table is far below the map: do not scroll, the chip has a link to the row.
    if (n !== null) select(n, { show: window.matchMedia("(min-width: 1081px)").matches });
    else if (selected !== null) select(selected);
  }

  function startMap(canvas) {
    const sizeOf = (n) => byNumber.get(n)?.size;
    const isFiltered = () => selected !== null || matches !== null;
    const isChosen = (n) => n === selected;
    const state = { nameOf, sizeOf, isLit, isChosen, isFiltered, isDark: () => dark };
    const made = makeMap(canvas, points, state, pick, showTooltip);
    const actions = {
      "zoom-in": () => made.zoom(1.6),
      "zoom-out": () => made.zoom(1 / 1.6),
      reset: made.reset,
      "selection-zoom": () => made.zoomTo(selected),
      "selection-clear": () => select(selected),
      "selection-row": () => rows.get(selected)?.scrollIntoView({ block: "center" }),
      "selection-show": () => canvas.scrollIntoView({ block: "center" }),
    };
    for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
    return made;
  }

  // ---- the pairs ----

  const pairHaystack = (pair) => (pair.haystack ??= fold([pair.text_a, pair.text_b, pair.id_a, pair.id_b].join("\n")));
  let foundPairs = pairs;
  let shownPairs = 0;

  function showMorePairs() {
    const makeMarks = (marks) =>
      make("div", { class: "marks" }, ...marks.map((text) => make("span", { class: "mark", text })));
    const side = (text, id) => make("div", {}, makeText(text), make("div", { class: "id", dir: "auto", text: id }));
    for (const pair of foundPairs.slice(shownPairs, shownPairs + PAGE)) {
      $("pair-list").append(make("li", {}, make("div", { class: "score number", text: measure(pair.score) }),
        side(pair.text_a, pair.id_a), side(pair.text_b, pair.id_b),
        ...(pair.marks.length ? [makeMarks(pair.marks)] : [])));
    }
    shownPairs = Math.min(shownPairs + PAGE, foundPairs.length);
    $("pair-list").hidden = !foundPairs.length;
    $("pair-none").hidden = foundPairs.length > 0;
    $("pair-more").hidden = shownPairs === foundPairs.length;
    const fewer = foundPairs.length < pairs.length;
    $("pair-found").textContent = fewer ? ` ${count(foundPairs.length)} match the search.` : "";
    $("pair-more").textContent = `Show more (${count(shownPairs)} of ${count(foundPairs.length)})`;
  }
  function findPairs(query) {
    const words = fold(query).split(/\s+/).filter(Boolean);
    foundPairs = pairs.filter((pair) => words.every((word) => pairHaystack(pair).includes(word)));
    shownPairs = 0;
    $("pair-list").replaceChildren();
    showMorePairs();
  }

  // ---- light and dark, and the start ----

  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  function applyTheme() {
    dark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
    for (const body of document.querySelectorAll("tbody[data-cluster]")) {
      paintDot(body.querySelector(".dot"), Number(body.dataset.cluster));
    }
    if (selected !== null && $("selection")) paintDot($("selection").querySelector(".dot"), selected);
    map?.draw();
  }
  const remember = (theme) => {
    try { // a page that is opened from a file may have no storage
      if (theme) localStorage.setItem("sbert-beam-theme", theme);
      return localStorage.getItem("sbert-beam-theme");
    } catch { return null; }
  };
  if (["light", "dark"].includes(remember())) root.dataset.theme = remember();
  $("theme").addEventListener("click", () => {
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
    applyTheme();
  });
  prefersDark.addEventListener("change", applyTheme);
  let themeBefore;
  window.addEventListener("beforeprint", () => { // prints the map on white
    themeBefore = root.dataset.theme;
    root.dataset.theme = "light";
    applyTheme();
  });
  window.addEventListener("afterprint", () => {
    if (themeBefore) root.dataset.theme = themeBefore;
    else delete root.dataset.theme;
    applyTheme();
  });

  const map = $("map") ? startMap($("map")) : null;
  applyTheme();
  if (table) {
    listClusters();
    for (const button of table.tHead.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        const key = button.dataset.sort;
        const down = sorting.key === key ? !sorting.down : key !== "name" && key !== "nearest";
        sorting = { key, down };
        listClusters();
      });
    }
    $("cluster-more").addEventListener("click", showMoreRows);
    panel.addEventListener("scroll", () => {
      if (shown < listed.length && panel.scrollTop + panel.clientHeight > panel.scrollHeight - 400) showMoreRows();
    }, { passive: true });
  }
  if (pairs.length) {
    showMorePairs();
    $("pair-more").addEventListener("click", showMorePairs);
    $("pair-search").addEventListener("input", (event) => findPairs(event.target.value));
  }
  $("cluster-search")?.addEventListener("input", (event) => findClusters(event.target.value));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    map?.hide();
    if (event.target.type === "search" && event.target.value) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    } else if (selected !== null) select(selected);
  });
  const linked = /^#cluster-(-?\d+)$/.exec(location.hash);
  if (linked && byNumber.has(Number(linked[1]))) select(Number(linked[1]), { show: true });
})();
