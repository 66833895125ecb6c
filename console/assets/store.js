// The store keeps the browser's copy of the scene: all objects by kind, and the state of the stream.
import { signal } from './vendor/signals.js';

export const version = signal(0); // grows with each change of the objects
export const link = signal({ state: 'connecting' }); // state of the stream: connecting, live, lost, signedOut
export const head = signal(null); // fields of the newest line, without the objects
export const loaded = signal(0); // number of snapshots that this page has shown
export const freshAt = signal(0); // time of the last line from a live watch of the cloud, on the browser's clock
export const events = signal([]); // newest last
export const fresh = signal([]); // the events of the newest line, without the events of a snapshot
export const notice = signal('');
export const route = signal([]); // the parts of the fragment's path
export const selected = signal(null); // {kind, id}
export const identity = signal(null);
export const project = signal(''); // only objects of this project; '' for all
export const now = signal(Date.now()); // grows each second

const objects = new Map(); // kind -> Map of id -> object
let token = '';
let channel = null;

export const signedIn = signal(false);
export const signInError = signal('');

export const idOf = (o) => o.id || (o.namespace ? `${o.namespace}/${o.name}` : o.name);

/** everywhere returns the objects of a kind in all projects. */
export function everywhere(kind) {
  version.value;
  return [...(objects.get(kind)?.values() ?? [])];
}

export const isChosenProject = (o) => !project.value || !o.project || o.project === project.value;

/** all returns the objects of a kind that are in the chosen project. */
export const all = (kind) => everywhere(kind).filter(isChosenProject);

export function get(kind, id) {
  version.value;
  return objects.get(kind)?.get(id);
}

export function count(kind) {
  version.value;
  return objects.get(kind)?.size ?? 0;
}

/** cloudNow returns the cloud's time in milliseconds, from the last read of its clock. */
export function cloudNow() {
  const c = head.value?.clock;
  if (!c) return now.value;
  return Date.parse(c.now) + (serverNow() - Date.parse(c.readAt)) * c.rate;
}

/** isActive reports whether a fault can hit calls now. The API's field when of faults has the same rules. */
export function isActive({ when = {}, hits, createdAt }) {
  const from = when.from ? Date.parse(when.from) : Date.parse(createdAt) + (when.afterSeconds ?? 0) * 1000;
  const until = when.forSeconds ? from + when.forSeconds * 1000 : when.until ? Date.parse(when.until) : Infinity;
  return from <= cloudNow() && cloudNow() < until && !(when.max && hits >= when.max);
}

export const activeFaults = () => all('fault').filter(isActive);

let skew = 0; // the machine's clock minus the browser's clock
export const serverNow = () => now.value + skew;

function apply(line) {
  if (line.type === 'signedOut') return signOut('Your access has ended. Run "allinone console open" for a new link.');
  if (line.type === 'snapshot') objects.clear();
  for (const [kind, list] of Object.entries(line.put ?? {})) {
    let m = objects.get(kind);
    if (!m) objects.set(kind, (m = new Map()));
    for (const o of list) m.set(idOf(o), o);
  }
  for (const [kind, ids] of Object.entries(line.delete ?? {})) for (const id of ids) objects.get(kind)?.delete(id);
  if (line.type === 'snapshot') events.value = line.events ?? [];
  else if (line.events?.length) {
    events.value = [...events.value, ...line.events].slice(-300);
    fresh.value = line.events;
  }
  if (line.notice) notice.value = line.notice;
  const { put, delete: gone, events: _, ...rest } = line;
  skew = Date.parse(line.now) - Date.now();
  head.value = rest;
  if (line.cloud.live) freshAt.value = Date.now();
  if (line.type === 'snapshot' && loaded.value++ > 0) readIdentity(); // the rights of the token can have changed
  if (put || gone || line.type === 'snapshot') version.value++;
  link.value = { state: 'live', at: Date.now() };
}

function snapshotLine() {
  const put = {};
  for (const [kind, m] of objects) put[kind] = [...m.values()];
  return { ...head.value, type: 'snapshot', put, events: events.value };
}

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** repeat sends a request up to three times, until an answer arrives. A change of the machine's network interrupts requests of the browser. */
async function repeat(path, options) {
  for (let tries = 1; ; tries++) {
    try {
      return await fetch(path, options);
    } catch (e) {
      if (tries === 3) throw e;
    }
    await new Promise((r) => setTimeout(r, 1000));
  }
}

/** call sends a request to the API and returns the decoded answer. It repeats only reads. */
export async function call(method, path, body, ofProject) {
  const headers = { Authorization: `Bearer ${token}` };
  if (ofProject) headers['Cloud-Project'] = ofProject;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let resp;
  try {
    resp = await (method === 'GET' ? repeat : fetch)(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'omit', cache: 'no-store' });
  } catch {
    if (method === 'GET') throw new Problem(0, 'The cloud did not answer. Check that the cloud runs, and repeat the action.');
    throw new Problem(0, 'The cloud did not answer. The call may have changed the cloud: check the result before you repeat the call.');
  }
  const text = await resp.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    // The answer is not JSON, because it comes from a proxy. The status contains the reason.
  }
  if (!resp.ok) {
    if (resp.status === 401) signOut('The token is not valid any more. Run "allinone console open" for a new link.');
    const fields = (answer?.errors ?? []).map((e) => `${e.field} ${e.reason}`).join('; ');
    throw new Problem(resp.status, [answer?.detail ?? resp.statusText, fields].filter(Boolean).join(': '));
  }
  return answer;
}

export function signOut(why) {
  token = '';
  sessionStorage.removeItem('token');
  signInError.value = why ?? '';
  signedIn.value = false;
  identity.value = null;
  objects.clear();
  head.value = null;
  loaded.value = freshAt.value = 0;
  stop?.();
  link.value = { state: 'signedOut' };
}

let stop = null;

async function signInWith(secret) {
  token = secret;
  sessionStorage.setItem('token', secret);
  signInError.value = '';
  signedIn.value = true;
  await readIdentity();
  if (token === secret) startStream();
}

let retry;

/** readIdentity reads the rights of the token. If the cloud does not answer, it tries again. */
async function readIdentity() {
  const secret = token;
  clearTimeout(retry);
  try {
    const mine = await call('GET', '/v1/whoami');
    if (token === secret) identity.value = mine;
  } catch {
    if (token && token === secret) retry = setTimeout(readIdentity, 2000);
  }
}

/** usePastedToken signs in with a token that the user has typed. */
export function usePastedToken(text) {
  const secret = text.trim();
  if (/^[\x21-\x7e]+$/.test(secret)) return signInWith(secret);
  signInError.value = 'A token contains only letters, digits and punctuation of ASCII. Copy the whole token, without spaces.';
}

/** begin signs in with the code in the fragment, or with the token of this browser. */
export async function begin() {
  const code = new URLSearchParams(location.hash.slice(1)).get('c');
  if (code) {
    history.replaceState(null, '', '#/map'); // first, so that the browser's history does not contain the code
    readRoute();
    try {
      const resp = await repeat('session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }), credentials: 'omit' });
      const answer = await resp.json();
      if (resp.ok) {
        sessionStorage.setItem('token', answer.token);
        location.reload(); // so that the browser's list of loaded URLs does not contain the code
        return;
      }
      signInError.value = answer.detail;
    } catch {
      signInError.value = 'The console did not answer. Is the cloud running?';
    }
    return;
  }
  const own = sessionStorage.getItem('token');
  if (own) return signInWith(own);
  const other = await askOtherTabs();
  if (other && !token) return signInWith(other);
}

// A new tab gets the token from a tab of the same origin. The token is in no cookie and no URL.
const tabs = new BroadcastChannel('console-session');
tabs.onmessage = ({ data }) => {
  if (data.want && token) tabs.postMessage({ token });
};

function askOtherTabs() {
  return new Promise((resolve) => {
    const ask = new BroadcastChannel('console-session');
    const done = (t) => {
      ask.close();
      resolve(t);
    };
    ask.onmessage = ({ data }) => data.token && done(data.token);
    ask.postMessage({ want: true });
    setTimeout(() => done(null), 300);
  });
}

function hash(s) {
  let h = 0;
  for (const c of s) h = (Math.imul(h, 31) + c.charCodeAt(0)) | 0;
  return h.toString(36);
}

// One tab of a browser reads the stream and passes the lines to the other tabs. Web Locks choose this
// tab. Without Web Locks (plain HTTP on another host), each tab reads its own stream.
function startStream() {
  stop?.();
  const ended = new AbortController();
  stop = () => ended.abort();
  const name = `console-${hash(token)}`;
  channel = new BroadcastChannel(name);
  let leads = false;
  channel.onmessage = ({ data }) => {
    if (data.want && leads && loaded.value) channel.postMessage({ to: data.want, line: snapshotLine() });
    if (data.line && !leads && (!data.to || data.to === me)) apply(data.line);
    if (data.lost && !leads) link.value = data.lost;
  };
  const me = crypto.getRandomValues(new Uint32Array(2)).join('-');
  ended.signal.addEventListener('abort', () => channel.close());
  const lead = async () => {
    leads = true;
    await read(ended.signal);
  };
  if (!navigator.locks) {
    lead();
    return;
  }
  channel.postMessage({ want: me });
  navigator.locks.request(name, { signal: ended.signal }, lead).catch(() => {}); // aborted by stop
}

async function read(signal) {
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 2000)) {
    let problem; // the reason why the console refuses the stream
    try {
      const watchdog = new AbortController();
      let timer = setTimeout(() => watchdog.abort(), 8000); // the console sends a line every two seconds
      const resp = await fetch('scene', { headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.any([signal, watchdog.signal]), credentials: 'omit', cache: 'no-store' });
      if (resp.status === 401) return signOut('The token is not valid any more. Run "allinone console open" for a new link.');
      if (resp.status === 403) return signOut((await resp.json()).detail);
      if (!resp.ok) {
        problem = (await resp.json()).detail;
        throw new Error(problem);
      }
      const lines = resp.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await lines.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(() => watchdog.abort(), 8000);
        const parts = (rest + value).split('\n');
        rest = parts.pop();
        for (const p of parts) {
          const line = JSON.parse(p);
          wait = 250;
          apply(line);
          channel.postMessage({ line });
        }
      }
      clearTimeout(timer);
    } catch {
      // the loop connects again
    }
    if (signal.aborted) return;
    if (link.value.state !== 'lost' || link.value.problem !== problem) link.value = { state: 'lost', at: link.value.at ?? Date.now(), problem };
    channel.postMessage({ lost: link.value });
    await new Promise((r) => setTimeout(r, wait));
  }
}

setInterval(() => {
  now.value = Date.now();
  const l = link.value; // a line arrives every two seconds
  if (l.state === 'live' && now.value - l.at > 8000) link.value = { state: 'lost', at: l.at };
}, 1000);

// A page that the browser keeps after a navigation must not keep the lock.
addEventListener('pagehide', () => stop?.());
addEventListener('pageshow', (e) => e.persisted && token && startStream());

function readRoute() {
  route.value = location.hash.replace(/^#\/?/, '').split('/').map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
}
addEventListener('hashchange', () => (location.hash.startsWith('#c=') ? begin() : readRoute())); // a link can be opened in a tab of the console
readRoute();

/** names reports whether a permission is the name of an operation, or a pattern that matches the name. In a pattern, * stands for any characters. */
const names = (p, operation) => new RegExp(`^${p.replaceAll('.', '\\.').replaceAll('*', '.*')}$`).test(operation);

export const can = (operation) => (identity.value?.grants ?? []).some((g) => g.permissions.some((p) => names(p, operation) || (p === '@write' && !/^(faults|holds|clock|states)\./.test(operation))));
