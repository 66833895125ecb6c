// Small components that all views use.
import { html } from './vendor/htm-preact.js';
import { signal } from './vendor/signals.js';
import { serverNow } from './store.js';

const paths = {
  map: 'M2 3h5v4H2zM9 3h5v4H9zM2 9h5v4H2zM9 9h5v4H9z',
  list: 'M2 4h12M2 8h12M2 12h12',
  text: 'M3 1.500h7l3 3v10H3zM5.500 7h5M5.500 9.500h5M5.500 12h3',
  events: 'M2 4h5M5 8h7M3 12h9',
  warn: 'M8 2l6.5 12h-13zM8 6.500v3.500M8 12v.5',
  bolt: 'M9 1.500L3.500 9H8l-1 5.500L12.500 7H8z',
  clock: 'M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13zM8 4.500V8l2.500 2',
  back: 'M3 8a5 5 0 1 1 1.500 3.500M3 8l-1.500-2M3 8l2-1.800',
  copy: 'M5 5h9v9H5zM11 5V2H2v9h3',
  cloud: 'M4.500 13h7a3 3 0 0 0 .4-6 4 4 0 0 0-7.700-.6A3.300 3.300 0 0 0 4.500 13z',
  check: 'M3 8.500l3.500 3.500L13 4.500',
  cross: 'M4 4l8 8M12 4l-8 8',
  half: 'M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12',
  close: 'M4 4l8 8M12 4l-8 8',
};

/** Icon draws a symbol. Screen readers ignore the symbol, because a text beside it has the same meaning. */
export const Icon = ({ name, size = 16 }) => html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true"><path d=${paths[name]} /></svg>`;

const shapes = {
  ok: html`<circle cx="8" cy="8" r="5" fill="currentColor" />`,
  off: html`<rect x="3" y="3" width="10" height="10" fill="currentColor" />`,
  warn: html`<g><circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" stroke-width="2" /><path d="M8 3a5 5 0 0 1 0 10z" fill="currentColor" /></g>`,
  bad: html`<path d="M3.500 3.500l9 9M12.500 3.500l-9 9" stroke="currentColor" stroke-width="2.500" fill="none" />`,
  good: html`<path d="M3 8.500l3.500 3.500L13 4.500" stroke="currentColor" stroke-width="2.500" fill="none" />`,
};

const tones = {
  running: 'ok', active: 'good', available: 'ok', 'in-use': 'ok', done: 'good', ready: 'good', healthy: 'good', working: 'good', completed: 'good', True: 'good',
  stopped: 'off', terminated: 'off', deleted: 'off', cancelled: 'off',
  failed: 'bad', error: 'bad', unhealthy: 'bad', crashed: 'bad', degraded: 'warn', False: 'bad', NotReady: 'bad', blackhole: 'bad',
};
export const toneOf = (state) => tones[state] ?? 'warn';

/** State shows a state with a word, a shape and a color. */
export const State = ({ is, tone = toneOf(is), small }) => is && html`<span class=${`state ${tone}${small ? ' small' : ''}`}><svg class="shape" width="11" height="11" viewBox="0 0 16 16" aria-hidden="true">${shapes[tone]}</svg>${is}</span>`;

export const Chip = ({ tone = '', children, title }) => html`<span class=${`chip ${tone}`} title=${title}>${children}</span>`;

/** age returns the time since an instant in one unit: 12 s, 3 min, 2 h or 5 d. */
export function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}
export const since = (at) => age(serverNow() - Date.parse(at));

/** bytes returns a number of bytes in a unit that people read. */
export function bytes(n) {
  for (const unit of ['B', 'kB', 'MB']) {
    if (n < 1000) return `${Math.round(n * 10) / 10} ${unit}`;
    n /= 1000;
  }
  return `${Math.round(n * 10) / 10} GB`;
}

export const clockTime = (at, millis) => {
  const t = new Date(at);
  if (isNaN(t)) return '';
  return t.toISOString().slice(11, millis ? 23 : 19);
};

export const said = signal(''); // for screen readers
const pause = 2000; // time between two announcements
let next = ''; // the text that waits for the end of the pause
let pausing = false;
/** say announces a text to screen readers, at most one text in two seconds. A newer text replaces a waiting text. */
export function say(text) {
  next = text;
  if (!pausing) announce();
}

function announce() {
  pausing = next !== '';
  if (!pausing) return;
  said.value = next;
  next = '';
  setTimeout(announce, pause);
}

const spoken = ['instance', 'loadBalancer', 'disk', 'snapshot']; // kinds whose states are announced
const states = new Map(); // newest state of each object, as a text
const unspoken = new Set(); // objects with a state that is not yet announced
/** sayChanges announces the new states of objects to screen readers. If many objects have changed, it announces only their number. */
export function sayChanges(list) {
  for (const e of list) {
    const text = `${e.name || e.id} ${e.deleted ? 'deleted' : e.state}`;
    if (!spoken.includes(e.kind) || states.get(e.id) === text) continue;
    states.set(e.id, text);
    if (!unspoken.size) setTimeout(saySettled, 500); // skips states that last less than half a second
    unspoken.add(e.id);
  }
}

function saySettled() {
  say(unspoken.size > 3 ? `${unspoken.size} objects changed` : [...unspoken].map((id) => states.get(id)).join(', '));
  unspoken.clear();
}

export const toast = signal(null); // {text, tone, undo}
let timer;
export function tell(text, tone = 'ok', undo) {
  toast.value = { text, tone, undo };
  say(text);
  clearTimeout(timer);
  timer = setTimeout(() => (toast.value = null), undo ? 30000 : tone === 'bad' ? 12000 : 7000);
}

/** compare orders texts, and numbers in texts by their value. A collator is many times faster than localeCompare. */
export const compare = new Intl.Collator(undefined, { numeric: true }).compare;

/** Command shows a command of the CLI with a button that copies it. */
export const Command = ({ text }) => html`<div class="cmd"><code>${text}</code><button class="icon-button" aria-label=${`Copy: ${text}`} title="Copy" onClick=${() => copy(text)}><${Icon} name="copy" size="14" /></button></div>`;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    tell('Command copied');
  } catch {
    tell('The browser does not allow the page to copy text. Select the text instead.', 'bad');
  }
}

export const Empty = ({ title, children }) => html`<div class="empty"><b>${title}</b><div class="muted">${children}</div></div>`;

/** NoPage is the page for a URL that belongs to no page, for example a link with an error in it. */
export const NoPage = () => html`<h1>Page not found</h1><${Empty} title="This URL belongs to no page of the console">Choose a view in the menu.</${Empty}>`;
