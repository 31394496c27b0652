"use strict";
// The pages of Treadle. They are made by the server; this keeps them up to date, and sends what people answer.
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const meta = (name) => $(`meta[name=${name}]`).content;
const ROOT = meta("root"), API = `${ROOT}/api/v1`;

// --- Sending and saying.

async function send(path, body) {
  let answer;
  try {
    answer = await fetch(API + path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": meta("csrf") },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error("The server cannot be reached. Nothing was sent, or it is not known: look again.");
  }
  const said = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  if (!answer.ok) throw new Error(said.error);
  return said;
}

function say(text, isBad = false) {
  const line = document.createElement("p");
  line.textContent = text;
  if (isBad) line.className = "bad";
  $("#toast").append(line);
  setTimeout(() => line.remove(), isBad ? 9000 : 4000);
}

function ask(title, text, { field = null, points = null, yes = "Yes" } = {}) {
  const dialog = $("#ask"), fields = $("#ask-fields");
  $("#ask-title").textContent = title;
  $("#ask-text").textContent = text;
  $("#ask-yes").textContent = yes;
  fields.replaceChildren();
  let input = null;
  if (points) {
    input = document.createElement("select");
    input.append(new Option("the end", ""), ...points.map((one) => new Option(`${one.label}, event ${one.seq}`, one.seq)));
  } else if (field) {
    input = document.createElement("textarea");
    input.placeholder = field;
    input.rows = 2;
  }
  if (input) {
    input.setAttribute("aria-label", field || "Point");
    fields.append(input);
  }
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? (input ? input.value : "") : null), { once: true }),
  );
}

// --- Keeping the page up to date, without moving what a person looks at or writes.

function isInUse(node) {
  return node.matches("[data-keep]") || (node.matches("form, dialog") && (node.contains(document.activeElement) || node.dataset.dirty));
}

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== 1 || fresh.nodeType !== 1 || old.tagName !== fresh.tagName) return void old.replaceWith(fresh);
  if (isInUse(old)) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open" && name !== "class") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.matches("input, textarea, select")) return;
  const keyed = new Map($$(":scope > [data-key]", old).map((one) => [one.dataset.key, one]));
  const keys = new Set($$(":scope > [data-key]", fresh).map((one) => one.dataset.key));
  const isList = keyed.size + keys.size > 0;
  const isBlank = (node) => isList && node.nodeType === 3 && !node.data.trim();
  const isGone = (node) => isBlank(node) || (node.dataset && node.dataset.key && !keys.has(node.dataset.key) && !$$("form", node).some(isInUse));
  const move = (node, before) => (old.moveBefore && node.parentNode === old ? old.moveBefore(node, before) : old.insertBefore(node, before));
  let at = old.firstChild;
  for (const one of [...fresh.childNodes].filter((node) => !isBlank(node))) {
    const key = one.dataset && one.dataset.key;
    while (at && isGone(at)) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const same = key ? keyed.get(key) : at && !(at.dataset && at.dataset.key) && at.nodeName === one.nodeName ? at : null;
    if (!same) move(one, at);
    else if (same === at) {
      at = at.nextSibling;
      morph(same, one);
    } else {
      move(same, at);
      morph(same, one);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    if (!(gone.nodeType === 1 && $$("form", gone).some(isInUse))) gone.remove();
  }
}

let loading = null, isStale = false, again = 0, soon = 0, loadedAt = 0;
function retry() {
  clearTimeout(again);
  again = setTimeout(refresh, 3000);
}
// What others do comes in bursts: it is shown at once, and then once a second.
function refreshSoon() {
  clearTimeout(soon);
  soon = setTimeout(refresh, Math.max(0, loadedAt + 1000 - Date.now()));
}
async function refresh() {
  if (loading) return void (isStale = true);
  loadedAt = Date.now();
  loading = (async () => {
    const answer = await fetch(location.href, { headers: { "X-Part": "1" } });
    if (answer.redirected && new URL(answer.url).pathname.endsWith("/login")) return void location.reload();
    if (!answer.ok) return void retry();
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!fresh) return;
    morph($("#main"), document.importNode(fresh, true));
    badge(Number(fresh.dataset.waiting));
    $("#fault").hidden = !fresh.dataset.fault;
    $("#fault span").textContent = fresh.dataset.fault;
    after();
  })().catch(retry);
  await loading;
  loading = null;
  if (isStale) {
    isStale = false;
    setTimeout(refresh, 250);
  }
}

function badge(count) {
  const mark = $("#badge");
  mark.hidden = !count;
  mark.textContent = count > 999 ? "999+" : count;
  document.title = document.title.replace(/^\(\d+\+?\) /, "");
  if (count) document.title = `(${mark.textContent}) ${document.title}`;
}

function ages() {
  const now = Date.now() / 1000;
  for (const one of $$("time[data-at]")) {
    const s = Math.max(0, now - one.dataset.at);
    const text = s >= 86400 ? `${Math.floor(s / 86400)} d` : s >= 3600 ? `${Math.floor(s / 3600)} h` : s >= 60 ? `${Math.floor(s / 60)} min` : `${Math.floor(s)} s`;
    if (one.textContent !== text) one.textContent = text;
  }
}

// A browser keeps six connections to a host: a page that nobody looks at has none, and looks by itself once in a while.
let source = null;
function onVisibility() {
  if (source) source.close();
  if (follower) follower.close();
  source = follower = null;
  if (document.hidden) return;
  watch();
  refresh();
}

function watch() {
  if (document.hidden) return;
  source = new EventSource(`${API}/changes`);
  const mark = $("#live"), own = source;
  let first = true;
  source.addEventListener("changed", (event) => {
    const { version, waiting } = JSON.parse(event.data);
    mark.classList.remove("off");
    $(".live-text").textContent = "live";
    if (first && Number($("#main").dataset.version) === version) return void ((first = false), badge(waiting));
    first = false;
    if (Number($("#main").dataset.version) !== version) refreshSoon();
  });
  source.onerror = () => {
    mark.classList.add("off");
    $(".live-text").textContent = "not connected";
    if (own === source && own.readyState === EventSource.CLOSED) setTimeout(watch, 3000);
  };
}

// --- One session while it runs.

let follower = null, said = "";
function showSaid() {
  const box = $("#live-answer");
  if (!box) return;
  const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
  box.hidden = !said;
  $("#live-text").textContent = said;
  if (isAtEnd && said) scrollTo(0, document.body.scrollHeight);
}

function followSession() {
  const place = $("[data-session][data-head]");
  if (!place || !place.dataset.live || follower || document.hidden) return;
  const own = (follower = new EventSource(`${API}/live?session=${encodeURIComponent(place.dataset.session)}`));
  own.addEventListener("state", (event) => {
    const { head, text } = JSON.parse(event.data);
    said = text;
    showSaid();
    if (head > $("[data-head]").dataset.head) refreshSoon();
  });
  own.addEventListener("text", (event) => {
    said += JSON.parse(event.data).text;
    showSaid();
  });
  own.addEventListener("event", (event) => {
    const wasSaid = said;
    if (JSON.parse(event.data).type.startsWith("model.")) said = "";
    if (wasSaid && !said) refresh(); // what was live comes as a whole
    else refreshSoon();
  });
  own.addEventListener("end", () => {
    own.close();
    follower = null;
    said = "";
    refresh();
  });
  own.onerror = () => {
    if (own !== follower || own.readyState !== EventSource.CLOSED) return;
    follower = null;
    setTimeout(followSession, 3000);
  };
}

async function raw() {
  const place = $("#raw");
  if (!place || place.dataset.loading) return;
  place.dataset.loading = "1";
  const after = place.lastElementChild ? place.lastElementChild.dataset.seq : 0;
  const answer = await fetch(`${API}/events?session=${encodeURIComponent(place.dataset.session)}&after=${after}`);
  for (const event of (await answer.json()).events || []) {
    const line = document.createElement("details"), head = document.createElement("summary"), body = document.createElement("pre");
    line.dataset.seq = event.seq;
    head.textContent = `${String(event.seq).padStart(4)}  ${new Date(event.at * 1000).toISOString().slice(11, 23)}  ${event.type}`;
    body.className = "code";
    body.textContent = JSON.stringify(event, null, 2);
    line.append(head, body);
    place.append(line);
  }
  delete place.dataset.loading;
}

// --- What people do.

function valueOf(input) {
  const text = input.value;
  if (text === "") return undefined;
  if (input.dataset.type === "boolean") return text === "true";
  return ["integer", "number"].includes(input.dataset.type) ? Number(text) : text;
}

function bodyOf(form, button) {
  const body = JSON.parse(form.dataset.body);
  for (const one of $$("input[name], textarea[name]", form)) body[one.name] = one.value;
  if (button && button.name) body[button.name] = button.value;
  if (button && button.dataset.scope) body.scope = button.dataset.scope;
  const edited = $("textarea[data-arguments]", form);
  if (edited && body.answer === "allow") {
    let value;
    try { value = JSON.parse(edited.value); } catch { throw new Error("The edited arguments are not valid JSON."); }
    if (JSON.stringify(value) !== JSON.stringify(JSON.parse(form.dataset.original))) body.arguments = value;
  }
  const json = $("textarea[data-json]", form);
  if (json && json.value.trim()) {
    try { body[json.dataset.json] = JSON.parse(json.value); } catch { throw new Error("The result is not valid JSON. A text needs quotes."); }
  }
  if ("value" in form.dataset) {
    const inputs = $$("[data-field]", form);
    const isOne = inputs.length === 1 && !inputs[0].dataset.field;
    body.value = isOne ? valueOf(inputs[0]) ?? "" : Object.fromEntries(inputs.map((one) => [one.dataset.field, valueOf(one)]).filter((pair) => pair[1] !== undefined));
  }
  return body;
}

async function submitForm(form, button) {
  for (const one of $$("button", form)) one.disabled = true;
  try {
    const said = await send(form.dataset.api, bodyOf(form, button));
    delete form.dataset.dirty;
    if (form.contains(document.activeElement)) document.activeElement.blur(); // elsewhere somebody writes already
    if (form.dataset.go) {
      form.reset();
      if (!new URL(location.href).searchParams.get("session")) return void (location.href = ROOT + form.dataset.go + encodeURIComponent(said.session));
    } else say(button && button.textContent ? `${button.textContent.trim()}: recorded.` : "Recorded.");
    const item = form.closest(".item");
    const next = item && (item.nextElementSibling || item.previousElementSibling);
    await refresh();
    if (next && next.isConnected && document.activeElement === document.body) next.focus();
  } catch (error) {
    say(error.message, true);
    refresh();
  } finally {
    for (const one of $$("button", form)) one.disabled = false;
  }
}

async function act(button) {
  const { act: name, id, consequence } = button.dataset, body = { act: name, ids: [id] };
  const wishes = { yes: button.textContent.trim() };
  if (name === "steer") wishes.field = "Message";
  if (name === "suspend" || name === "activate") wishes.field = "Reason, for the record";
  if (name === "fork") wishes.points = JSON.parse(button.dataset.points);
  const given = await ask(`${button.textContent.trim()}?`, consequence, wishes);
  if (given === null) return;
  if (name === "steer") body.text = given;
  else if (name === "fork" && given) body.at = Number(given);
  else if (given) body.reason = given;
  try {
    const said = await send("/sessions", body);
    if (name === "fork") return void (location.href = `${ROOT}/session?id=${encodeURIComponent(said.results[0].session)}`);
    say(`${button.textContent.trim()}: done.`);
  } catch (error) {
    say(error.message, true);
  }
  refresh();
}

const picked = () => $$("[data-pick]:checked");
const allOf = () => $("#bulk [data-all][aria-pressed=true]");
function showPicked() {
  const bar = $("#bulk");
  if (!bar) return;
  const chosen = picked(), all = allOf();
  bar.hidden = !chosen.length;
  if (all && !chosen.length) all.setAttribute("aria-pressed", "false");
  $("#bulk-count").textContent = all && chosen.length ? all.dataset.all : chosen.length;
  const { kind, tool } = chosen.length ? chosen[0].dataset : {};
  for (const one of $$("[data-pick]")) one.disabled = Boolean(chosen.length && (one.dataset.kind !== kind || one.dataset.tool !== tool));
  for (const one of $$("[data-for]", bar)) one.hidden = one.dataset.for !== kind;
}

const PLACES = { approval: "/approvals", doubt: "/doubts", session: "/sessions" };
async function bulk(button) {
  const chosen = picked(), all = allOf(), { kind = "session", tool } = chosen[0]?.dataset || {};
  const clear = () => { for (const one of chosen) one.checked = false; showPicked(); };
  if (button.dataset.bulk === "") return clear();
  const name = button.textContent.trim(), count = Number($("#bulk-count").textContent);
  const what = `${count} ${kind === "doubt" ? "call" : kind === "approval" ? "request" : "session"}${count === 1 ? "" : "s"}`;
  const said = button.dataset.consequence || `Each is answered by itself, with the same reason: ${tool}.`;
  const reason = await ask(`${name}: ${what}?`, said, { field: kind === "doubt" ? "How you know" : "Reason, for the record", yes: name });
  if (reason === null) return;
  const body = { reason };
  if (all) {
    body.where = Object.fromEntries([...new URLSearchParams(location.search)].filter(([key, value]) => value && key !== "page" && (kind === "session" || key !== "kind")));
    body.limit = count;
  } else if (kind === "session") body.ids = chosen.map((one) => one.dataset.id);
  else body.requests = chosen.map((one) => ({ session: one.dataset.session, id: one.dataset.id }));
  if (kind === "session") body.act = button.dataset.sessions;
  else body[kind === "doubt" ? "outcome" : "answer"] = button.dataset.bulk;
  try {
    const said = await send(PLACES[kind], body), results = said.results || [said];
    const failed = results.filter((one) => one.error);
    say(`${results.length - failed.length} done${failed.length ? `, ${failed.length} not: ${failed[0].error}` : ""}.`, failed.length > 0);
  } catch (error) {
    say(error.message, true);
  }
  clear();
  refresh();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.api) return;
  event.preventDefault();
  submitForm(form, event.submitter);
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("form");
  if (form && form.dataset.api) form.dataset.dirty = "1";
  if (event.target.id === "search") {
    clearTimeout(input.timer);
    input.timer = setTimeout(() => filter(form), 350);
  }
});
const input = {};
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick]")) showPicked();
  const form = event.target.closest("form[data-filters]");
  if (form && event.target.id !== "search") filter(form);
});
function filter(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  refresh();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button, [data-zoom]");
  const menu = $("details.menu[open]");
  if (menu && !menu.contains(event.target)) menu.open = false;
  if (!button) return;
  if (button.dataset.act) act(button);
  else if (button.dataset.all) {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    showPicked();
  }
  else if ("bulk" in button.dataset || button.dataset.sessions) bulk(button);
  else if (button.dataset.fill !== undefined) {
    const field = $("[data-field]", button.closest("label"));
    field.value = button.dataset.fill;
    field.focus();
    event.preventDefault();
  } else if ("decline" in button.dataset) {
    const form = button.closest("form");
    send(form.dataset.api, { ...JSON.parse(form.dataset.body), value: false }).then(() => (say("Declined."), refresh()), (error) => say(error.message, true));
  } else if (button.dataset.zoom) {
    const [x, width] = button.dataset.zoom.split(" ");
    for (const lane of $$(".waterfall .bar-lane")) lane.setAttribute("viewBox", `${x} 0 ${Math.max(0.5, width)} 10`);
  } else if (button.id === "theme") {
    const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("treadle-theme", document.documentElement.dataset.theme);
  } else if (button.id === "keys") $("#help").showModal();
});

// --- The keyboard.

let prefix = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && !event.shiftKey && event.target.closest(".compose")) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
    return;
  }
  if ($("dialog[open]")) return;
  const lines = $$(".item, .sessions tbody tr, .bar"), here = lines.indexOf(document.activeElement.closest(".item, tr, .bar"));
  const item = here >= 0 ? lines[here] : null;
  const press = (selector) => { const found = item && $(selector, item); if (found) { event.preventDefault(); found.focus(); found.click(); } };
  if (prefix === "g") {
    prefix = "";
    const place = { i: "/inbox", s: "/sessions", f: "/fleet", c: "/costs" }[event.key];
    if (place) location.href = ROOT + place;
    return;
  }
  switch (event.key) {
    case "j": case "k": {
      const next = lines[here < 0 ? 0 : here + (event.key === "j" ? 1 : -1)];
      if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
      break;
    }
    case "a": press("button[value=allow]:not([data-scope])"); break;
    case "d": {
      const reason = item && $(".reason", item), deny = item && $("button[value=deny]", item);
      if (deny && reason && document.activeElement !== reason && !reason.value) { event.preventDefault(); reason.focus(); reason.dataset.deny = "1"; } else press("button[value=deny]");
      break;
    }
    case "e": press("details.edit summary"); break;
    case "x": press("[data-pick]"); break;
    case "Enter": press("a[data-open]"); break;
    case "/": if ($("#search")) { event.preventDefault(); $("#search").focus(); } break;
    case "g": prefix = "g"; setTimeout(() => (prefix = ""), 1200); break;
    case "?": $("#help").showModal(); break;
  }
});
document.addEventListener("keydown", (event) => {
  // Enter in the reason that `d` has opened denies; elsewhere it must not answer by accident.
  if (event.key !== "Enter" || !event.target.matches(".reason")) return;
  event.preventDefault();
  if (event.target.dataset.deny) $("button[value=deny]", event.target.form).click();
});

function after() {
  ages();
  showSaid();
  showPicked();
  followSession();
  raw();
}
const theme = localStorage.getItem("treadle-theme");
if (theme) document.documentElement.dataset.theme = theme;
if ($("#main") && $("meta[name=csrf]")) {
  after();
  watch();
  document.addEventListener("visibilitychange", onVisibility);
  setInterval(ages, 5000);
  setInterval(() => document.hidden && refresh(), 30000);
}
