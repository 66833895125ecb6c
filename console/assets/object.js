// The page of one object: its state, the reason for the state, its differences, and actions.
import { html } from './vendor/htm-preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { call, events, get, head, selected, route } from './store.js';
import { Chip, Empty, Icon, NoPage, State, clockTime, since, Command, toneOf } from './parts.js';
import { Actions, actionsFor, inProject, word } from './actions.js';
import { Edges, Flow, stateOf } from './map.js';
import { kinds, pageOf } from './tables.js';

const cluster = ['node', 'service', 'volumeAttachment'];

/** useWhy reads the explanation of an object, and reads it again after each event about the object. */
function useWhy(kind, id, project) {
  const [why, setWhy] = useState(null);
  const revision = events.value.findLast((e) => e.id === id || e.cause?.includes(id))?.rev ?? 0;
  useEffect(() => {
    if (!id || cluster.includes(kind)) return setWhy(null);
    let current = true;
    call('GET', `/v1/why?object=${encodeURIComponent(id)}`, undefined, project).then((w) => current && setWhy(w), (e) => current && setWhy({ id, error: e.message }));
    return () => (current = false);
  }, [kind, id, revision, project]);
  return why?.id && why.id !== id ? null : why;
}

const color = { ok: '--ok', good: '--ok', warn: '--warn', bad: '--bad', off: '--off' };

function Step({ s }) {
  const state = s.text.split(' ').pop();
  const tone = s.kind === 'fault' ? 'bad' : s.kind === 'operation' ? 'off' : toneOf(state);
  return html`<li style=${{ '--c': `var(${color[tone] ?? '--muted'})` }}><time datetime=${s.time}>${clockTime(s.time)}</time><div>
    ${s.caller && s.caller !== 'cloud' && html`<b>${s.caller}</b> `}${s.cause && html`<code>${s.cause}</code> `}<div>${s.kind !== 'instance' && html`<span class="muted">${s.kind} ${s.id}: </span>`}${s.text}</div>
    ${s.requestId && html`<div class="muted small mono">${s.requestId}</div>`}</div></li>`;
}

export function Story({ kind, id, limit = 100 }) {
  const o = get(kind, id);
  const why = useWhy(kind, id, o?.project);
  if (why?.error) return html`<p class="muted">The history is not available: ${why.error}</p>`;
  if (!why) return cluster.includes(kind) ? null : html`<p class="muted">Reading the journal…</p>`;
  const steps = why.steps.slice(-limit);
  const state = kind === 'instance' && o ? stateOf({ ...o, state: why.state }) : why.state;
  return html`<h2>${why.gone ? 'WHY IT WAS DELETED' : state ? `WHY IT IS ${state.toUpperCase()}` : 'HISTORY'}</h2>
    ${steps.length < why.steps.length && html`<a class="small" href=${pageOf(kind, id)}>${why.steps.length - steps.length} earlier steps</a>`}
    <ol class="story">${steps.map((s) => html`<${Step} key=${s.rev} s=${s} />`)}
      ${(why.waits ?? []).map((w) => html`<li style=${{ '--c': 'var(--warn)' }}><span class="time">waiting</span><div>${w.text}${w.until && html`<div class="muted small">until ${clockTime(w.until)}</div>`}</div></li>`)}</ol>
    <${Command} text=${`allinone cloud why ${word(id)}`} />`;
}

export function Found({ kind, id }) {
  const list = (head.value?.differences ?? []).filter((d) => (d.kind === kind && d.id === id) || (kind === 'node' && d.node === id));
  return list.map((d) => html`<div class="card found" key=${d.rule}><b>${d.missing ? 'Missing in the cloud or in the cluster' : 'Cloud and cluster differ'} for ${since(d.since)}</b><div class="small">${d.text}</div>${d.expected && html`<div class="small">Next: ${d.expected}</div>`}</div>`);
}

const titleOf = (kind) => kinds[kind]?.label.replace(/s( \(cluster\))?$/, '').replace(/sse$/, 'ss') ?? kind;

/** closePanel closes the panel beside the map. The focus goes back to the selected card. */
export function closePanel() {
  document.querySelector('.pick[aria-pressed=true]')?.focus();
  selected.value = null;
}

/** Panel shows the selected object beside the map. */
export function Panel() {
  const s = selected.value;
  if (!s) return html`<p class="muted">Choose an instance, a Node or a load balancer to see the reason for its state.</p>`;
  const o = get(s.kind, s.id);
  return html`<div class="row"><h2 class="big">${o?.name ?? s.id}</h2><${Chip}>${s.id}</${Chip}><span class="grow"></span><button class="icon-button" aria-label="Close the panel" onClick=${closePanel}><${Icon} name="close" /></button></div>
    <div class="row wrap">${o ? html`<${State} is=${s.kind === 'instance' ? stateOf(o) : s.kind === 'node' ? (o.ready === 'True' ? 'ready' : 'NotReady') : o.state} />` : html`<${State} is="deleted" />`}<span class="muted small">${titleOf(s.kind)}</span><a class="small" href=${pageOf(s.kind, s.id)}>Open the page</a></div>
    <${Found} kind=${s.kind} id=${s.id} />
    ${s.kind === 'node' && o && html`<${NodeFacts} n=${o} />`}
    ${o && html`<div><h2>ACTIONS</h2><${Actions} list=${actionsFor(s.kind, o)} /></div>`}
    <div><${Story} kind=${s.kind} id=${s.id} limit=${12} /></div>`;
}

function NodeFacts({ n }) {
  return html`<dl class="facts"><dt>Provider id</dt><dd class="mono">${n.providerID || 'none'}</dd><dt>Zone</dt><dd>${n.zone || 'none'}</dd><dt>Addresses</dt><dd class="mono">${(n.addresses ?? []).map((a) => a.address).join(', ')}</dd><dt>Taints</dt><dd>${n.taints?.length ? n.taints.join(', ') : 'none'}</dd><dt>Ready</dt><dd>${n.ready} ${n.reason}</dd></dl><${Command} text=${`kubectl describe node ${word(n.name)}`} />`;
}

function Value({ v }) {
  if (v === null || v === undefined) return 'none';
  if (Array.isArray(v)) return v.length ? html`<ul>${v.slice(0, 50).map((x) => html`<li><${Value} v=${x} /></li>`)}${v.length > 50 && html`<li>${v.length - 50} more</li>`}</ul>` : 'none';
  if (typeof v === 'object') return html`<span class="mono">${Object.entries(v).map(([k, x]) => `${k}: ${typeof x === 'object' ? JSON.stringify(x) : x}`).join(', ')}</span>`;
  return String(v);
}

export function ObjectPage() {
  const [, kind, id] = route.value;
  if (!id) return html`<${NoPage} />`;
  const o = get(kind, id);
  const related = o && html`${(o.attachments ?? []).map((a) => html`<a href=${pageOf('instance', a.instance)}>${get('instance', a.instance)?.name ?? a.instance}</a>`)}
    ${(o.targets ?? []).slice(0, 20).map((t) => html`<a href=${pageOf('instance', t.instance)}>${get('instance', t.instance)?.name ?? t.instance}</a>`)}
    ${kind === 'operation' && html`<a href=${pageOf(o.kind, o.target)}>${o.target}</a>`}${o.operation && html`<a href=${pageOf('operation', o.operation)}>${o.operation}</a>`}${[o.network, ...(o.networkInterfaces ?? []).map((n) => n.network)].filter(Boolean).map((id) => html`<a href=${pageOf('network', id)}>${get('network', id)?.name ?? id}</a>`)}`;
  return html`<nav class="crumbs" aria-label="Path">${Object.hasOwn(kinds, kind) ? html`<a href=${`#/resources/${kind}`}>${kinds[kind].label}</a>` : kind}</nav>
    <div class="row wrap"><h1>${o?.name ?? id}</h1><${Chip}>${id}</${Chip}>${o ? html`<${State} is=${kind === 'instance' ? stateOf(o) : o.state} />` : html`<${State} is="deleted" />`}</div>
    ${!o && html`<${Empty} title="This object does not exist now">${cluster.includes(kind) ? 'The console has no history of objects of the cluster.' : 'The events below show when and why the object was deleted, if the journal still has these events.'}</${Empty}>`}
    <${Found} kind=${kind} id=${id} />
    ${o && html`<${Actions} list=${actionsFor(kind, o)} />`}
    ${o && kind === 'loadBalancer' && html`<section class="card" aria-label="Traffic"><div class="row wrap"><h2>TRAFFIC</h2><span class="grow"></span><${Flow} id=${id} /></div><${Edges} lb=${o} limit=${50} /><${Command} text=${`allinone cloud load-balancers stats ${word(o.name)}${inProject(o)}`} /></section>`}
    <div class="columns"><section aria-label="Story"><${Story} kind=${kind} id=${id} /></section>
    ${o && html`<section aria-label="Fields"><h2>RELATED</h2><p class="row wrap related">${related}</p><h2>FIELDS</h2><dl class="facts">${Object.entries(o).map(([k, v]) => html`<dt key=${k}>${k}</dt><dd><${Value} v=${v} /></dd>`)}</dl></section>`}</div>`;
}
