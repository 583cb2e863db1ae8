// The page's script: it shows what events say, asks for searches and stories, and writes text only, never HTML.
"use strict";

const byId = (id) => document.getElementById(id);

// el makes an element. Attributes that are undefined or false are left out; children are nodes or text.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== false) e.setAttribute(key, value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}

const muted = (text) => el("p", { class: "muted" }, text);
const many = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;

function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 6000) return `${Math.round(seconds)} s`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

const clock = (time) => new Date(time).toLocaleTimeString("en-GB");
const day = (t) => (Math.abs(now() - t) < 43200000 ? t.toLocaleTimeString("en-GB") : t.toLocaleString("en-GB"));
function when(time) {
  const t = new Date(time);
  return el("time", { datetime: time, title: t.toISOString() }, day(t));
}

// The bridge's clock counts, not the one of who looks.
let ahead = 0;
const now = () => Date.now() + ahead;

// since is a time that grows while one looks, as what is drawn here stays as long as nothing new comes.
function since(time, key) {
  const e = el("span", { "data-since": time, "data-key": key });
  e.textContent = span(Math.max(0, (now() - new Date(time)) / 1000));
  return e;
}

function tick() {
  for (const e of document.querySelectorAll("[data-since]")) {
    e.textContent = span(Math.max(0, (now() - new Date(e.dataset.since)) / 1000));
  }
  for (const e of document.querySelectorAll("time")) {
    const text = day(new Date(e.dateTime));
    if (e.textContent !== text) e.textContent = text;
  }
}

// Stories are at addresses of their own, so that they can be passed on, and the way back leads back.
function link(kind, name, where) {
  return el("a", { href: `#${kind}/${encodeURIComponent(name)}`, "data-key": `${where}/${kind}/${name}` }, String(name));
}

function jobLinks(jobs, where) {
  const out = [];
  for (const id of (jobs || []).slice(0, 8)) {
    if (out.length) out.push(", ");
    out.push(link("job", id, where));
  }
  if (jobs && jobs.length > 8) out.push(` and ${jobs.length - 8} more`);
  return out;
}

// table has heads [text, class] and rows of cells; the first cell of a row is its head. On a phone its parts are no longer laid out as a table, so their roles are said.
function table(caption, heads, rows, leftOut) {
  const cell = (c, i) => el(i ? "td" : "th", { scope: i ? undefined : "row", role: i ? "cell" : "rowheader", class: heads[i][1], "data-head": i ? heads[i][0] : undefined }, c);
  const t = el("table", { role: "table" }, el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map(([text, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, text)))),
    el("tbody", { role: "rowgroup" }, rows.map((cells) => el("tr", { role: "row" }, cells.map(cell)))));
  const out = [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, "data-key": `table/${caption}` }, t)];
  if (leftOut) out.push(muted(`… and ${leftOut.toLocaleString("en")} more; search finds them.`));
  return out;
}

// paint replaces what is in an element if that has changed, and leaves the focus and the scrolling where they were.
const painted = new Map();
function paint(id, data, draw) {
  const text = JSON.stringify(data);
  if (painted.get(id) === text) return;
  painted.set(id, text);
  const to = byId(id);
  const inside = document.activeElement && to.contains(document.activeElement);
  const key = inside ? document.activeElement.dataset.key : undefined;
  const scrolled = new Map([...to.querySelectorAll(".scroll")].map((s) => [s.dataset.key, s.scrollLeft]));
  to.replaceChildren(...[draw(data)].flat(Infinity));
  for (const s of to.querySelectorAll(".scroll")) s.scrollLeft = scrolled.get(s.dataset.key) || 0;
  if (!inside) return;
  const again = key && [...to.querySelectorAll("[data-key]")].find((e) => e.dataset.key === key);
  if (again) again.focus({ preventScroll: true });
  else { // what had the focus is gone: stay near it
    const head = to.closest("section").querySelector("h2");
    head.setAttribute("tabindex", "-1");
    head.focus({ preventScroll: true });
  }
}

// Bars. What a bar shows is in the text beside it, too.

function bar(parts, all) {
  const e = el("div", { class: "bar", "aria-hidden": "true" });
  for (const [kind, n, title] of parts) {
    if (!(n > 0)) continue;
    const s = el("span", { class: kind, title });
    s.style.width = `${Math.min(100, (100 * n) / all)}%`;
    e.append(s);
  }
  return e;
}

const states = [
  ["ready", "ready"], ["booting", "booting"], ["failed", "failed"], ["off", "off, leaving or drained"], ["unknown", "unknown to slurmctld"], ["unread", "not read yet"],
];
const stateBar = (n) => bar(states.map(([key, text]) => [key, n[key], `${n[key]} ${text}`]), Math.max(1, n.all));

function drawNodes({ nodes, list }) {
  if (!list.items.length) return muted("There are no NodeSets.");
  const legend = el("ul", { class: "legend" },
    states.filter(([key]) => nodes[key] || ["ready", "booting", "failed", "off"].includes(key))
      .map(([key, text]) => el("li", {}, el("i", { class: key, "aria-hidden": "true" }), el("b", {}, nodes[key].toLocaleString("en")), ` ${text}`)));
  const rows = list.items.map((s) => [
    link("nodeset", s.name, "nodes"), s.nodes.all.toLocaleString("en"), stateBar(s.nodes), s.nodes.ready.toLocaleString("en"), s.nodes.booting.toLocaleString("en"),
    s.nodes.failed.toLocaleString("en"), s.nodes.off.toLocaleString("en"),
    s.floor ? `${s.floor.held} of ${s.floor.wanted}` + (s.floor.ahead ? `, ${s.floor.ahead} ahead` : "") : "–",
    s.outdated ? String(s.outdated) : "–",
    (s.problems || []).length ? el("span", { class: "bad" }, s.problems.join("; ")) : "–",
  ]);
  const unsure = nodes.unknown + nodes.unread;
  return [
    el("p", {}, el("b", {}, many(nodes.all, "node", "nodes")), ` in ${many(list.items.length + (list.leftOut || 0), "NodeSet", "NodeSets")}`,
      unsure ? `; of ${unsure.toLocaleString("en")} Slurm has told nothing` : ""),
    stateBar(nodes), legend,
    table("NodeSets", [["NodeSet", "name"], ["Nodes", "number"], ["States", "spare"], ["Ready", "number"], ["Booting", "number"], ["Failed", "number"], ["Off", "number"],
      ["Stay up", "spare"], ["Outdated", "number spare"], ["Problems", "long"]], rows, list.leftOut),
  ];
}

const bootPhases = ["removing", "accepted", "creating", "pending", "starting", "running"];
function drawJobs(list) {
  if (!list.items.length) return muted("No job waits for nodes that boot.");
  return table("Jobs that wait for nodes", [["Job", "name"], ["Waits for", "number"], ["Since", "number"], ["Its boots are", "long"], ["Problem", "long"]],
    list.items.map((j) => [
      link("job", j.id, "jobs"), j.up ? `${j.boots} of ${many(j.boots + j.up, "node", "nodes")}` : many(j.boots, "node", "nodes"), since(j.since),
      j.phases.map((n, i) => (n ? `${n} ${bootPhases[i]}` : "")).filter(Boolean).join(", "), j.problem ? el("span", { class: "bad" }, j.problem) : "–",
    ]), list.leftOut);
}

let phases = [];
function drawLegend(all) {
  return [
    el("ul", { class: "legend" }, all.map((p, i) => el("li", {}, el("i", { class: `phase${i}`, "aria-hidden": "true" }), p.name))),
    el("details", {}, el("summary", { "data-key": "legend" }, "What the phases are"), el("ul", {}, all.map((p) => el("li", {}, el("b", {}, p.name), `: ${p.text}`)))),
  ];
}

const total = (all) => all.reduce((sum, s) => sum + s, 0);
const parts = (all) => all.map((s, i) => [`phase${i}`, s, `${phases[i].name} ${span(s)}`]);
const told = (all) => all.map((s, i) => (s > 0 ? `${phases[i].name} ${span(s)}` : "")).filter(Boolean).join(", ");

function drawSeconds(list) {
  if (!list.length) return muted("No boot has been seen yet.");
  const most = Math.max(...list.map((s) => total(s.median)), 0.001);
  return table("Seconds of boots by NodeSet", [["NodeSet", "name"], ["Median", "number"], ["Where it goes", "wide"], ["95 of 100 within", "number"], ["Slowest", "number"], ["Of boots", "number spare"]],
    list.map((s) => [
      link("nodeset", s.nodeSet, "seconds"), span(s.half), [bar(parts(s.median), most), el("span", { class: "muted" }, told(s.median))], span(s.p95),
      [span(s.slowest), " ", link("node", s.slowestNode, "seconds")], String(s.boots),
    ]));
}

const outcomes = { registered: "", booting: "", failed: "failed", "given back": "given back", "given up": "given up" };
function drawBoots(caption, list, empty) {
  if (!list.items.length) return muted(empty);
  const long = (b) => (b.now ? Math.max(total(b.seconds), (now() - new Date(b.began)) / 1000) : total(b.seconds));
  const most = Math.max(...list.items.map(long), 0.001);
  return table(caption, [["Node", "name"], ["Job", "spare"], ["Began", "number spare"], ["Took", "number"], ["Where it went", "wide"], ["Host", "spare"]],
    list.items.map((b) => {
      const spans = parts(b.seconds);
      if (b.now) spans.push([`phase${Math.min(b.seconds.length, phases.length - 1)} open`, long(b) - total(b.seconds), `${b.now}, under way`]);
      const text = [told(b.seconds), b.now, outcomes[b.outcome], b.offering ? `on ${b.offering}` : ""].filter(Boolean).join(", ");
      return [
        [link("node", b.node, caption), b.nodeSet ? el("span", { class: "muted" }, ` ${b.nodeSet}`) : ""], jobLinks(b.jobs, `${caption}/${b.node}`), when(b.began),
        b.now ? since(b.began) : span(total(b.seconds)),
        [bar(spans, most), el("span", { class: "muted" }, text), b.problem ? el("p", { class: "bad" }, b.problem) : ""], b.host || "–",
      ];
    }), list.leftOut);
}

function drawNotTried(list) {
  if (!list.items.length) return muted("Everything may be tried.");
  return table("Not tried at present", [["NodeSet", "name"], ["Offering", ""], ["Until", "number"], ["Why", "long"], ["What to do", "long"]],
    list.items.map((b) => [
      link("nodeset", b.nodeSet, "nottried"), b.offering || "–", b.probing ? "one boot tries now" : b.until ? when(b.until) : "its spec changes",
      [el("b", {}, b.class), `: ${b.reason} (${many(b.failures, "failure", "failures")})`], b.do || "–",
    ]), list.leftOut);
}

function drawVerdicts(list) {
  if (!list.items.length) return muted("None that the newest history tells of.");
  return table("Why boots came to nothing", [["Last", "name"], ["NodeSet", "name"], ["Times", "number"], ["Verdict", "long"], ["Nodes", "long spare"], ["What to do", "long spare"]],
    list.items.map((v) => [
      when(v.last), v.nodeSet ? [link("nodeset", v.nodeSet, "verdicts"), v.offering ? ` on ${v.offering}` : ""] : "–", v.times.toLocaleString("en"),
      [el("b", {}, v.class), `: ${v.reason}`], [v.nodes, " – the newest: ", link("node", v.node, "verdicts")], v.do || "–",
    ]), list.leftOut);
}

function drawBacks(list) {
  if (!list.items.length) return muted("None that the newest history tells of.");
  return table("Jobs given back", [["Job", "name"], ["When", "number"], ["In a row", "number"], ["Why", "long"]],
    list.items.map((b) => [link("job", b.job, "backs"), when(b.time), String(b.times || 1), b.reason]), list.leftOut);
}

function drawNotes(list) {
  if (!list.items.length) return muted("None since the bridge began.");
  return table("Other problems", [["Last", "name"], ["Node", "name"], ["Times", "number"], ["What", "long"]],
    list.items.map((n) => [when(n.time), n.node ? link("node", n.node, "notes") : "–", String(n.times), n.text]), list.leftOut);
}

function drawDemand({ scaler, demand }) {
  const help = (...text) => el("p", { class: "muted" }, ...text);
  if (!scaler) {
    return help("What pending jobs ask for the scaler knows, and the bridge has not been told where it is: ", el("code", {}, "--scaler"), " of the bridge. ",
      el("code", {}, "slurmtide explain job"), " tells what becomes of one job.");
  }
  if (!demand) return muted("Asks the scaler …");
  if (demand.error) return el("p", { class: "bad" }, `The scaler has no figures: ${demand.error}`);
  const sets = demand.nodeSets;
  return [
    demand.pending.length ? el("ul", { class: "legend" }, demand.pending.map((p) => el("li", {}, el("b", {}, p.jobs.toLocaleString("en")), ` ${p.says}`))) : muted("No job is pending."),
    sets.items.length ? table("What jobs ask of NodeSets",
      [["NodeSet", "name"], ["Needed", "number"], ["To power up", "number"], ["In use", "number"], ["Free soon", "number"], ["Jobs that count", "number"]],
      sets.items.map((s) => [link("nodeset", s.name, "demand"), ...[s.needed, s.powerUp, s.inUse, s.freeingSoon, s.jobs].map((n) => n.toLocaleString("en"))]), sets.leftOut) : "",
    demand.never.items.length ? el("h3", {}, "Jobs that no NodeSet can ever run") : "",
    demand.never.items.length ? table("Jobs that no NodeSet can ever run", [["What stands against them", "long"], ["Jobs", "number"]],
      demand.never.items.map((m) => [m.miss, m.jobs.toLocaleString("en")]), demand.never.leftOut) : "",
  ];
}

function show(v) {
  phases = v.phases;
  byId("cluster").textContent = v.cluster;
  document.title = `${v.cluster}: Slurmtide`;
  paint("nodes-text", { nodes: v.nodes, list: v.nodeSets }, drawNodes);
  paint("jobs-text", v.jobs, drawJobs);
  paint("legend", v.phases, drawLegend);
  paint("seconds-text", v.seconds, drawSeconds);
  paint("booting-text", v.booting, (list) => drawBoots("Boots under way", list, "Nothing boots."));
  paint("over-text", v.over, (list) => drawBoots("Boots that have ended", list, "No boot has been seen yet."));
  paint("nottried-text", v.notTried, drawNotTried);
  paint("verdicts-text", v.verdicts, drawVerdicts);
  paint("backs-text", v.givenBack, drawBacks);
  paint("notes-text", v.notes, drawNotes);
  paint("demand-text", { scaler: v.scaler, demand: v.demand }, drawDemand);
  byId("about").textContent = `Bridge ${v.version || "of no version"}; the lease is ${v.lease}. ${many(v.requests, "request waits", "requests wait")}, ` +
    `${many(v.gates, "start gate waits", "start gates wait")}, ${many(v.pods, "pod", "pods")}.`;
}

// The status line is read out, so it changes only when there is something new to say.
function say(text, kind) {
  const to = byId("status");
  if (to.textContent !== text) to.textContent = text;
  to.className = kind;
}

let view = null, beat = null, asOf = null, source = null, retry = 0, heard = 0;
function sum() {
  if (beat && beat.error) return say(asOf ? `This is how it was at ${clock(asOf)}: ${beat.error}` : `There is nothing to show: ${beat.error}`, "bad");
  if (!view) return;
  if (view.trouble.length) return say(view.trouble.join(". "), "bad");
  const shut = view.notTried.items.length + (view.notTried.leftOut || 0);
  const sick = view.nodeSets.items.filter((s) => s.problems).length;
  const wrong = [];
  if (shut) wrong.push(`${many(shut, "NodeSet or offering is", "NodeSets or offerings are")} not tried at present`);
  if (sick) wrong.push(`${many(sick, "NodeSet has", "NodeSets have")} problems`);
  if (view.nodes.failed) wrong.push(`${many(view.nodes.failed, "node has", "nodes have")} failed`);
  if (wrong.length) return say(`The bridge works; ${wrong.join(", ")}`, "bad");
  say("All is well", "good");
}

function lost(why) {
  say(asOf ? `${why}; this is how it was at ${clock(asOf)}. Asking again …` : `${why}. Asking again …`, "bad");
}

function hear() {
  if (source || document.hidden) return;
  heard = Date.now();
  source = new EventSource("events");
  source.addEventListener("view", (e) => {
    view = JSON.parse(e.data);
    show(view);
    sum();
  });
  source.addEventListener("beat", (e) => {
    beat = JSON.parse(e.data);
    heard = Date.now();
    ahead = new Date(beat.time) - heard;
    if (beat.error) return sum();
    asOf = beat.time;
    const read = beat.slurmRead ? `; Slurm read completely ${span(Math.max(0, (new Date(beat.time) - new Date(beat.slurmRead)) / 1000))} before` : "";
    byId("clock").textContent = `As of ${clock(beat.time)}${read}`;
    sum();
  });
  source.onerror = () => {
    lost("The bridge does not answer, or as many look as it serves");
    if (source.readyState === EventSource.CLOSED) { // it was refused: the browser does not try again by itself
      hush();
      clearTimeout(retry);
      retry = setTimeout(hear, 5000);
    }
  };
}

function hush() {
  if (source) source.close();
  source = null;
}

// A connection may have ended without a word, as after a laptop has slept: the bridge has something to say every 15 seconds at least.
const silence = 30000;
function listen() {
  if (!source || Date.now() - heard < silence) return;
  lost("Nothing is heard of the bridge");
  hush();
  hear();
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return hush();
  hear();
  if (story) tell(false);
});
addEventListener("pagehide", hush);
addEventListener("pageshow", hear);

async function ask(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" } });
  const text = await response.text();
  try {
    return { ok: response.ok, late: response.status >= 500, body: JSON.parse(text) };
  } catch {
    return { ok: false, late: response.status >= 500, body: { error: text || `the bridge answered ${response.status}` } };
  }
}

// Search.

let asked = 0, pending = 0;
async function search(open) {
  const words = byId("words").value.trim();
  const mine = ++asked;
  if (!words) {
    byId("hits").replaceChildren();
    byId("found").textContent = "";
    return;
  }
  let list;
  try {
    const { ok, body } = await ask(`find?q=${encodeURIComponent(words)}`);
    if (mine !== asked) return; // words were typed since
    if (!ok) throw new Error(body.error);
    list = body;
  } catch (error) {
    if (mine === asked) byId("found").textContent = `The search failed: ${error.message}`;
    return;
  }
  const kinds = { job: "job", node: "node", nodeset: "NodeSet" };
  byId("hits").replaceChildren(...list.items.map((h) => {
    const a = link(h.kind, h.name, "hits");
    a.textContent = `${kinds[h.kind]} ${h.name}`;
    return el("li", {}, a, el("span", { class: "muted" }, ` ${h.text}`));
  }));
  byId("found").textContent = list.items.length ? many(list.items.length + (list.leftOut || 0), "match", "matches") : "Nothing matches";
  if (open && list.items.length) location.hash = `${list.items[0].kind}/${encodeURIComponent(list.items[0].name)}`;
}

byId("search").addEventListener("submit", (e) => {
  e.preventDefault();
  clearTimeout(pending);
  search(true);
});
byId("words").addEventListener("input", () => {
  clearTimeout(pending);
  pending = setTimeout(search, 250);
});

// Stories.

let story = "", from = null, again = 0;
function drawStory(t) {
  phases = t.phases;
  const list = (head, lines) => (lines && lines.length ? [el("dt", {}, head), lines.map((line) => el("dd", {}, line))] : []);
  const notes = [...(t.notes || [])];
  if (t.demand) notes.push(`what it counts for while it is pending the scaler knows: slurmtide explain job ${t.job}`);
  const out = [
    el("ul", {}, t.now.map((line) => el("li", {}, line))),
    el("dl", {}, list("Why", t.why ? [t.why] : []), list("Tried", t.tried), list("Next", t.next), list("What to do", t.do ? [t.do] : []), list("Note", notes)),
  ];
  if (t.steps && t.steps.length) {
    out.push(el("h3", {}, "What happened"));
    if (t.stepsLeftOut) out.push(muted(`${t.stepsLeftOut} earlier steps are left out.`));
    out.push(table("What happened", [["Time", "name"], ["After", "number"], ["What", "long"]], t.steps.map((s, i) => [
      when(s.time), i ? `+${span(s.afterSeconds)}` : "–",
      s.text + (s.last ? ` (the last ${span((new Date(s.last) - new Date(s.time)) / 1000)} later)` : ""),
    ])));
  }
  if (t.waterfall.length) {
    out.push(el("h3", {}, t.job ? "Its boots, the slowest first" : "Boots, the newest first"));
    out.push(drawBoots(`Boots of ${t.name}`, { items: t.waterfall, leftOut: 0 }, ""));
    if (t.bootsLeftOut) out.push(muted(`${t.bootsLeftOut} more are left out.`));
  }
  return out.flat();
}

async function tell(fresh) {
  clearTimeout(again);
  const [, kind, name] = /^#(job|node|nodeset)\/(.+)$/.exec(location.hash) || [];
  if (!kind) return shut(false);
  const subject = `${kind}=${name}`; // encoded as it is in the address
  const section = byId("story");
  if (fresh || subject !== story) {
    if (!section.contains(document.activeElement)) from = document.activeElement && document.activeElement.dataset.key;
    story = subject;
    let title = name;
    try { title = decodeURIComponent(name); } catch { /* shown as it is */ }
    byId("story-title").textContent = `Story of ${kind === "nodeset" ? "NodeSet" : kind} ${title}`;
    paint("story-text", { asks: subject }, () => muted("Asks the bridge …"));
    byId("story-time").textContent = "";
    section.hidden = false;
    byId("story-title").focus();
    section.scrollIntoView();
  }
  let answer;
  try {
    answer = await ask(`story?${subject}`);
  } catch (error) {
    answer = { ok: false, late: true, body: { error: `the bridge does not answer (${error.message})` } };
  }
  if (story !== subject) return; // another one is shown by now
  const { time, ...rest } = answer.body;
  paint("story-text", rest, () => (answer.ok ? drawStory(answer.body) : el("p", { class: "bad" }, answer.body.error)));
  byId("story-time").textContent = answer.ok ? `As of ${clock(time)}` + (answer.body.active ? "" : "; nothing is under way, so it is not asked for again") : "";
  if (answer.late || answer.body.active) again = setTimeout(() => (document.hidden ? undefined : tell(false)), answer.ok ? 5000 : 15000);
}

// shut closes the story, and gives the focus back to where it was opened.
function shut(leave) {
  clearTimeout(again);
  if (byId("story").hidden) return;
  byId("story").hidden = true;
  story = "";
  painted.delete("story-text");
  byId("story-text").replaceChildren();
  if (leave) {
    history.pushState(null, "", location.pathname + location.search);
    const back = from && [...document.querySelectorAll("[data-key]")].find((e) => e.dataset.key === from);
    (back || byId("words")).focus();
  }
}

byId("story-close").addEventListener("click", () => shut(true));
addEventListener("hashchange", () => tell(true));
addEventListener("popstate", () => { if (!location.hash) shut(false); });
document.addEventListener("keydown", (e) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  // No key alone (WCAG 2.1.4): speech that is taken for typing would move people about.
  if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key.toLowerCase() === "k") {
    e.preventDefault();
    byId("words").focus();
  } else if (e.key === "Escape" && !byId("story").hidden && !typing) {
    shut(true);
  }
});

setInterval(() => {
  tick();
  listen();
}, 1000);
hear();
tell(true);
