// The plain console: log in, look at regions and functions, upload. The token lives in this page's memory only.
"use strict";

let token = null;
let timer = null;

const byId = (id) => document.getElementById(id);

function say(text, good) {
  const place = byId("message");
  place.textContent = text;
  place.className = text === "" ? "" : good ? "good" : "bad";
}

// What went wrong, from a problem document or anything else.
function problem(status, text) {
  try {
    const body = JSON.parse(text);
    return `${body.code}: ${body.detail}`;
  } catch {
    return `the controller answered with status ${status}`;
  }
}

async function call(method, path, body) {
  const headers = {};
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) {
    if (answer.status === 401 && token !== null) logout();
    throw new Error(problem(answer.status, text));
  }
  return JSON.parse(text);
}

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    const place = document.createElement("td");
    if (typeof cell === "object") {
      place.textContent = cell.text;
      place.className = cell.good ? "good" : "bad";
    } else {
      place.textContent = String(cell);
    }
    line.append(place);
  }
  return line;
}

function fill(id, rows, empty) {
  const place = byId(id);
  place.replaceChildren(...(rows.length > 0 ? rows : [row([empty])]));
}

function health(cluster) {
  if (cluster.nodes_alive === 0) return { text: "down", good: false };
  const all = cluster.nodes_alive === cluster.nodes_total;
  return { text: all ? "healthy" : "degraded", good: all };
}

async function refresh() {
  try {
    const [clusters, apps] = await Promise.all([call("GET", "/v1/clusters"), call("GET", "/v1/apps")]);
    fill("clusters", clusters.map((c) => row([
      c.region, c.cluster, health(c), `${c.nodes_alive} of ${c.nodes_total}`, `${c.busy} of ${c.slots}`,
      `${c.free.memory_mib} MiB`, c.gateways.join(", "),
    ])), "no node has reported yet");
    fill("apps", apps.map((a) => row([
      a.app, a.host, `v${a.version}`, a.digest.slice(7, 19), new Date(a.deployed_at).toLocaleString(),
      { text: `${a.nodes_ready} of ${a.nodes_total}`, good: a.nodes_ready === a.nodes_total },
    ])), "nothing is deployed yet");
  } catch (error) {
    say(error.message, false);
  }
}

function show(inside) {
  byId("login-section").hidden = inside;
  byId("inside").hidden = !inside;
  byId("who").hidden = !inside;
  clearInterval(timer);
  if (inside) timer = setInterval(refresh, 3000);
}

function logout() {
  token = null;
  show(false);
}

async function login(event) {
  event.preventDefault();
  const form = event.target;
  try {
    const answer = await call("POST", "/v1/login", { user: form.user.value, password: form.password.value });
    token = answer.token;
    form.password.value = "";
    const network = await call("GET", "/v1/network");
    byId("zone").textContent = `zone ${network.zone}, controller ${network.version}`;
    say("", true);
    show(true);
    await refresh();
  } catch (error) {
    say(error.message, false);
  }
}

function deployed(answer) {
  const what = answer.unchanged ? "was current already" : "is deployed";
  say(`${answer.app} v${answer.version} ${what} at ${answer.host}`, true);
  byId("steps").replaceChildren(...answer.validation.map((step) => {
    const line = document.createElement("li");
    line.textContent = `${step.step}: ${step.result} (${step.took.toFixed(1)} ms)`;
    return line;
  }));
  refresh();
}

function upload(event) {
  event.preventDefault();
  const form = event.target;
  const body = new FormData();
  if (form.manifest.files.length > 0) body.append("manifest", form.manifest.files[0]);
  body.append("component", form.component.files[0]);
  const progress = byId("progress");
  byId("steps").replaceChildren();
  // fetch cannot tell how much of a body was sent.
  const request = new XMLHttpRequest();
  request.open("POST", `/v1/apps/${encodeURIComponent(form.app.value)}/versions`);
  request.setRequestHeader("authorization", `Bearer ${token}`);
  request.upload.onprogress = (part) => { progress.value = part.total > 0 ? part.loaded / part.total : 0; };
  request.onloadend = () => {
    progress.hidden = true;
    if (request.status === 200) deployed(JSON.parse(request.responseText));
    else say(request.status === 0 ? "the upload broke off; send it again" : problem(request.status, request.responseText), false);
  };
  progress.hidden = false;
  say("uploading and checking …", true);
  request.send(body);
}

byId("login").addEventListener("submit", login);
byId("upload").addEventListener("submit", upload);
byId("logout").addEventListener("click", logout);
