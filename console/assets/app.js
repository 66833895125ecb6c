// The frame of all pages: header, menu, panel, footer and sign-in.
import { html, render } from './vendor/htm-preact.js';
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { effect } from './vendor/signals.js';
import { activeFaults, all, begin, cloudNow, count, everywhere, fresh, freshAt, head, identity, link, loaded, notice, now, project, route, selected, serverNow, signedIn, signInError, signOut, usePastedToken, version } from './store.js';
import { Icon, NoPage, age, said, sayChanges, toast } from './parts.js';
import { Map_ } from './map.js';
import { Differences, Events, Resources, pageOf } from './tables.js';
import { ObjectPage, Panel, closePanel } from './object.js';
import { Banner, Confirm, Faults, States, Time } from './tools.js';
import { Logs } from './logs.js';

const views = { map: Map_, resources: Resources, object: ObjectPage, differences: Differences, events: Events, faults: Faults, time: Time, states: States, logs: Logs };
const menu = [['map', 'Map', 'map'], ['resources', 'Resources', 'list'], ['events', 'Events', 'events'], null, ['differences', 'Differences', 'warn'], ['faults', 'Faults', 'bolt'], ['time', 'Time', 'clock'], ['states', 'Saved states', 'back'], ['logs', 'Logs', 'text']];

function Menu() {
  version.value;
  const found = head.value?.differences?.length ?? 0;
  const faults = activeFaults().length;
  const badge = { resources: count('instance') + count('loadBalancer') + count('disk') || '', differences: found || '', faults: faults ? `${faults} active` : '' };
  const at = route.value[0] === 'object' ? 'resources' : route.value[0] || 'map';
  return html`<nav aria-label="Views">${menu.filter((m) => m?.[0] !== 'logs' || head.value?.logs).map((m) => (m ? html`<a href=${`#/${m[0]}`} aria-current=${at === m[0] ? 'page' : undefined} class=${['differences', 'faults'].includes(m[0]) && badge[m[0]] ? 'alert' : ''}><${Icon} name=${m[2]} /><span>${m[1]}</span>${badge[m[0]] && html`<span class="badge">${badge[m[0]]}</span>`}</a>` : html`<hr />`))}</nav>`;
}

function Search() {
  const [text, setText] = useState('');
  const ref = useRef(null);
  useEffect(() => {
    const key = (e) => {
      if (e.key === '/' && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)) {
        e.preventDefault();
        ref.current.focus();
      }
      if (e.key === 'Escape' && selected.value) closePanel();
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
  const find = text.trim().toLowerCase();
  const hits = find ? ['instance', 'loadBalancer', 'disk', 'node', 'service', 'operation', 'fault', 'network'].flatMap((kind) => all(kind).filter((o) => `${o.name} ${o.id ?? ''}`.toLowerCase().includes(find)).slice(0, 5).map((o) => ({ kind, id: o.id ?? (o.namespace ? `${o.namespace}/${o.name}` : o.name), name: o.name }))).slice(0, 8) : [];
  const go = (h) => {
    location.hash = pageOf(h.kind, h.id);
    setText('');
    document.getElementById('main').focus();
  };
  return html`<form class="search" role="search" onSubmit=${(e) => { e.preventDefault(); if (hits[0]) go(hits[0]); }}><input ref=${ref} type="search" aria-label="Find an object" placeholder="Find an instance, Node, Service…" value=${text} onInput=${(e) => setText(e.currentTarget.value)} /><kbd aria-hidden="true">/</kbd>
    ${find && html`<ul class="hits">${hits.map((h) => html`<li><a href=${pageOf(h.kind, h.id)} onClick=${(e) => { e.preventDefault(); go(h); }}><b>${h.name}</b> <span class="muted">${h.kind} ${h.id}</span></a></li>`)}${!hits.length && html`<li class="muted">No object has this name or id.</li>`}</ul>`}</form>`;
}

function ConnectionPill() {
  const l = link.value;
  const c = head.value?.cloud;
  if (l.state === 'lost') return html`<span class="pill bad"><span class="dot"></span><span role="status">disconnected, retrying</span>${loaded.value > 0 && html`<span>· data is ${age(now.value - l.at)} old</span>`}</span>`;
  if (l.state !== 'live') return html`<span class="pill warn"><span class="dot"></span><span role="status">connecting</span></span>`;
  if (c && !c.live) return html`<span class="pill bad" title=${c.problem}><span class="dot"></span><span role="status">no answer from the cloud</span>${loaded.value > 0 && html`<span>· data is ${age(Math.max(serverNow() - Date.parse(c.since), freshAt.value && now.value - freshAt.value))} old</span>`}</span>`;
  return html`<span class="pill ok"><span class="dot"></span><span role="status">live</span></span>`;
}

function Header() {
  const c = head.value?.clock;
  const projects = everywhere('project');
  return html`<header><a class="brand" href="#/map"><${Icon} name="cloud" size="20" />${head.value?.name || 'cloudsim'}</a><${Search} /><div class="grow"></div>
    ${c && html`<a class=${`pill ${c.mode === 'real' ? '' : 'cold'}`} href="#/time" title="The cloud's clock, UTC"><${Icon} name="clock" size="14" /><span class="mono">${new Date(cloudNow()).toISOString().slice(11, 19)}</span><b>${c.mode === 'real' ? 'real time' : c.mode}</b></a>`}
    <${ConnectionPill} />
    ${(projects.length > 1 || project.value) && html`<label class="pill project"><span>project</span><select aria-label="Project" value=${project.value} onChange=${(e) => (project.value = e.currentTarget.value)}><option value="">all</option>${projects.map((p) => html`<option value=${p.id}>${p.name}</option>`)}</select></label>`}
    <button class="quiet" onClick=${() => signOut('You are signed out of this tab.')} title=${identity.value?.caller}>Sign out</button></header>`;
}

function SignIn() {
  const [secret, setSecret] = useState('');
  return html`<main class="signin" id="main"><${Icon} name="cloud" size="40" /><h1>Sign in to the console</h1>
    ${signInError.value && html`<p class="problem" role="alert">${signInError.value}</p>`}
    <p>Run this command on the machine of the cloud. It prints a link that signs you in once:</p><pre class="cmd"><code>allinone console link</code></pre>
    <form onSubmit=${(e) => { e.preventDefault(); if (secret.trim()) usePastedToken(secret); }}><label class="labeled"><span>Or paste a token of the cloud</span><input type="password" autocomplete="off" value=${secret} onInput=${(e) => setSecret(e.currentTarget.value)} /></label><button class="primary" type="submit">Sign in</button></form>
    <p class="muted small">A token is in the file admin.token of the cloud's data directory, or comes from <code>allinone cloud tokens create</code>.</p></main>`;
}

function Toast() {
  const t = toast.value;
  return html`<div class=${`toast ${t?.tone ?? ''} ${t ? 'shown' : ''}`}>${t && html`<span>${t.text}</span>${t.undo && html`<button onClick=${() => { toast.value = null; t.undo(); }}>Undo</button>`}<button class="icon-button" aria-label="Dismiss" onClick=${() => (toast.value = null)}><${Icon} name="close" /></button>`}</div>`;
}

function App() {
  if (!signedIn.value) return html`<${SignIn} />`;
  const view = route.value[0] || 'map';
  const View = Object.hasOwn(views, view) ? views[view] : NoPage;
  const h = head.value;
  const stale = link.value.state === 'lost' || (h && !h.cloud.live);
  return html`<div class=${`frame ${view === 'map' ? 'with-panel' : ''} ${stale ? 'stale' : ''}`}><a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
    <${Header} /><${Menu} />
    <main id="main" tabindex="-1"><${Banner} />
      ${notice.value && html`<div class="banner info" role="status"><span>${notice.value}</span><span class="grow"></span><button onClick=${() => (notice.value = '')}>Dismiss</button></div>`}
      ${h?.cluster && !h.cluster.live && html`<div class="banner" role="status"><b>The view of the cluster is not current.</b><span>${h.cluster.problem}</span></div>`}
      ${loaded.value ? html`<${View} />` : link.value.problem ? html`<div class="banner" role="alert"><b>The console cannot read the cloud:</b><span>${link.value.problem}. The page tries again.</span></div>` : html`<p class="muted">Reading the cloud…</p>`}</main>
    ${view === 'map' && html`<aside id="panel" tabindex="-1" aria-label="Selected object" class=${selected.value ? 'open' : ''}><${Panel} /></aside>`}
    <footer><span>revision ${h?.rev ?? '…'}</span><span>${h?.viewers ?? 1} ${(h?.viewers ?? 1) === 1 ? 'viewer' : 'viewers'}</span><span class="grow"></span><span><kbd>/</kbd> find</span></footer>
    <${Confirm} /><${Toast} /><div class="sr" aria-live="polite">${said.value}</div></div>`;
}

// An update can remove or disable the element with the focus. The focus then moves to the nearest element around this element that still exists.
let focused = []; // the element with the focus, and the elements around it
addEventListener('focusin', (e) => {
  focused = [];
  for (let n = e.target; n && n !== document.body; n = n.parentElement) focused.push(n);
});
addEventListener('pointerdown', () => (focused = []), true); // a user who clicks beside all elements wants to remove the focus
new MutationObserver(() => {
  if (document.activeElement !== document.body || !focused.length || (focused[0].isConnected && !focused[0].disabled)) return;
  const near = focused.slice(1).find((n) => n.isConnected);
  if (!near) return;
  if (near.tabIndex < 0) near.tabIndex = -1;
  near.focus({ preventScroll: true });
}).observe(document.getElementById('app'), { childList: true, subtree: true, attributeFilter: ['disabled'] });

effect(() => sayChanges(fresh.value));
render(html`<${App} />`, document.getElementById('app'));
begin();
