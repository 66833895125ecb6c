// The map: the cloud on the left, the cluster on the right, one row for each pair.
import { html } from './vendor/htm-preact.js';
import { useEffect, useRef } from './vendor/hooks.js';
import { activeFaults, all, can, cloudNow, everywhere, get, head, isChosenProject, selected } from './store.js';
import { Chip, State, Empty, age, bytes, compare, since, toneOf } from './parts.js';
import { Create } from './tools.js';

// Above this number of pairs, the map shows squares. With cards, the map would have more than 3,000 elements.
const many = (cluster) => (cluster ? 60 : 120);

export const stateOf = (i) => (i.crashed && i.state === 'running' ? 'crashed' : i.state);
export const addressOf = (i) => i.addresses?.find((a) => a.type === 'internal')?.address ?? '';

function choose(kind, id, byKeyboard) {
  selected.value = { kind, id };
  if (byKeyboard) requestAnimationFrame(() => document.getElementById('panel')?.focus());
}
const isChosen = (kind, id) => selected.value?.kind === kind && selected.value?.id === id;

const Card = ({ kind, id, tone, children }) => html`<button class=${`card pick ${isChosen(kind, id) ? 'sel' : ''} ${tone ?? ''}`} aria-pressed=${isChosen(kind, id)} onClick=${(e) => choose(kind, id, e.detail === 0)}>${children}</button>`;

function InstanceCard({ i, disks }) {
  const op = i.operation && get('operation', i.operation);
  const running = op?.state === 'running' && op;
  return html`<${Card} kind="instance" id=${i.id}>
    <span class="row"><b class="name">${i.name}</b> <${Chip}>${i.id}</${Chip}> <span class="grow"></span><${State} is=${stateOf(i)} /></span>
    <span class="row small muted sub"><span class="mono">${addressOf(i)}</span><span>${i.type}</span>
      ${i.state === 'stopped' && html`<span>for ${age(cloudNow() - Date.parse(i.updatedAt))}</span>`}
      ${running && html`<${Chip} tone="warn">${running.verb}${running.heldBy ? ' held' : ''}</${Chip}>`}
      ${(disks.get(i.id) ?? []).slice(0, 2).map((d) => html`<${Chip}>${d.name.length > 14 ? d.id : d.name}</${Chip}>`)}
      ${(disks.get(i.id)?.length ?? 0) > 2 && html`<span>+${disks.get(i.id).length - 2} disks</span>`}</span></${Card}>`;
}

const shortTaint = (t) => t.replace(/^node\.(cloudprovider\.)?kubernetes\.io\//, '');

function NodeCard({ n, expected }) {
  const uninitialized = n.taints?.some((t) => t.includes('/uninitialized:'));
  const state = uninitialized ? 'uninitialized' : n.ready === 'True' ? 'Ready' : 'NotReady';
  return html`<${Card} kind="node" id=${n.name}>
    <span class="row"><b class="name">${n.name}</b><span class="grow"></span><${State} is=${state} tone=${state === 'Ready' ? 'good' : state === 'NotReady' ? 'bad' : 'warn'} /></span>
    <span class="row small muted sub"><span>${n.pods} ${n.pods === 1 ? 'pod' : 'pods'}</span>${n.cordoned && html`<${Chip}>cordoned</${Chip}>`}
      ${(n.taints ?? []).slice(0, 2).map((t) => html`<${Chip} tone=${t.includes('uninitialized') ? 'warn' : t.includes('NoExecute') ? 'bad' : 'off'} title=${t}>${shortTaint(t)}</${Chip}>`)}
      ${expected && html`<${Chip} tone="warn">expected: shutdown taint</${Chip}>`}</span></${Card}>`;
}

function Pair({ pair, disks, cluster }) {
  const { instance: i, node: n, found } = pair;
  const d = found[0];
  const look = !d ? 'equal' : d.missing ? 'missing' : 'differs';
  return html`<div class=${cluster ? 'pair' : 'pair alone'}>
    ${i ? html`<${InstanceCard} i=${i} disks=${disks} />` : html`<div class="card ghost">no instance</div>`}
    ${cluster && html`<div class=${`link ${look}`}><span>${d ? `${d.label} ${since(d.since)}` : i && !n ? i.state : 'in sync'}</span></div>`}
    ${cluster && (n ? html`<${NodeCard} n=${n} expected=${found.some((f) => f.rule === 'stopped-without-taint')} />` : html`<div class="card ghost">no Node</div>`)}</div>`;
}

/** count returns a number of instances as text. */
const count = (n) => `${n} ${n === 1 ? 'instance' : 'instances'}`;

/** pairs returns the pairs of instances and Nodes by zone. Nodes of instances in other projects are absent. */
function pairs() {
  const differences = Map.groupBy(head.value?.differences ?? [], (d) => `${d.kind} ${d.id}`);
  const nodes = new Map(all('node').map((n) => [n.name, n]));
  const byProvider = new Map([...nodes.values()].filter((n) => n.providerID).map((n) => [n.providerID, n]));
  const zones = new Map(all('zone').map((z) => [z.name, []]));
  const add = (zone, pair) => {
    if (!zones.has(zone)) zones.set(zone, []);
    zones.get(zone).push(pair);
  };
  const instances = everywhere('instance').sort((a, b) => compare(a.name, b.name));
  for (const i of instances) nodes.delete(byProvider.get(i.providerID)?.name); // an instance with the same name in another project is not the instance of this Node
  for (const i of instances) {
    const n = byProvider.get(i.providerID) ?? nodes.get(i.name);
    if (n) nodes.delete(n.name);
    if (isChosenProject(i)) add(i.zone, { key: i.id, instance: i, node: n, found: differences.get(`instance ${i.id}`) ?? [] });
  }
  for (const n of nodes.values()) add(n.zone || 'no zone', { key: `n ${n.name}`, node: n, found: differences.get(`node ${n.name}`) ?? [] });
  return [...zones].sort(([a], [b]) => compare(a, b));
}

function outageOf(zone) {
  const f = activeFaults().find((f) => f.effect?.type === 'zoneOutage' && f.match?.zone === zone);
  return f && html`<${Chip} tone="bad">fault ${f.name}</${Chip}>`;
}

const keyOf = (t) => `${t.instance} ${t.ip ?? ''}`;

/** Edge shows one target of a load balancer, with the share of the traffic that the target gets. */
function Edge({ t, flow, most }) {
  const healthy = t.health === 'healthy';
  const flows = healthy && flow?.connections + flow?.bytes > 0;
  const width = !healthy ? 1 : flow && most > 0 ? flow.connections / most : 0;
  return html`<div class="t"><b>${get('instance', t.instance)?.name ?? t.instance}</b><div class=${`bar ${healthy ? (flows ? 'flows' : '') : t.health}`}><i style=${{ width: `${Math.round(width * 100)}%` }}></i></div>
    <span class="row"><${State} small is=${t.health} />${flow && html`<span class="small muted">${flow.connections}/s</span>`}</span></div>${!healthy && t.reason && html`<div class="small muted reason">${t.reason}</div>`}`;
}

/** Flow shows the traffic of a load balancer as text. */
export function Flow({ id }) {
  const f = get('traffic', id);
  return f && html`<span class="small muted">${f.active} open ${f.active === 1 ? 'connection' : 'connections'} · ${f.connections} new/s · ${bytes(f.bytes)}/s${f.refused ? html` · <b>${f.refused} refused/s</b>` : ''}</span>`;
}

/** Edges shows the targets of a load balancer. */
export function Edges({ lb, limit = Infinity }) {
  const targets = lb.status?.targets ?? [];
  const flows = new Map((get('traffic', lb.id)?.targets ?? []).map((t) => [keyOf(t), t]));
  const most = Math.max(...[...flows.values()].map((t) => t.connections), 0);
  return html`<div class="targets">${targets.slice(0, limit).map((t) => html`<${Edge} key=${`${keyOf(t)} ${t.listener ?? ''}`} t=${t} flow=${flows.get(keyOf(t))} most=${most} />`)}
    ${targets.length > limit && html`<span class="small muted">${targets.length - limit} more targets</span>`}
    ${!targets.length && html`<span class="small muted">No target. The load balancer refuses connections.</span>`}</div>`;
}

function LoadBalancer({ lb }) {
  const service = lb.labels?.['kubernetes.io/service-name'];
  const found = (head.value?.differences ?? []).filter((d) => d.kind === 'loadBalancer' && d.id === lb.id);
  return html`<section class=${`card lb ${isChosen('loadBalancer', lb.id) ? 'sel' : ''}`}><button class="pick plain" aria-pressed=${isChosen('loadBalancer', lb.id)} onClick=${(e) => choose('loadBalancer', lb.id, e.detail === 0)}>
      <span class="row"><${State} is=${lb.status?.condition && lb.status.condition !== 'working' ? lb.status.condition : lb.state} /><span class="grow"></span><${Chip}>${lb.id}</${Chip}></span>
      <b class="title">${service ?? lb.name}</b>${service && html` <span class="muted small">Service ${lb.labels['kubernetes.io/service-namespace']}/${service}</span>`}
      ${lb.listeners.slice(0, 3).map((l) => html`<span class="block mono small">${lb.ip}:${l.port}${l.protocol === 'udp' ? '/udp' : ''} to port ${l.targetPort}</span>`)}
      <${Flow} id=${lb.id} />
      ${found.map((d) => html`<span class="block"><${Chip} tone="bad">${d.label} ${since(d.since)}</${Chip}></span>`)}</button>
    <${Edges} lb=${lb} limit=${6} /></section>`;
}

const colors = { ok: '--ok', good: '--ok', off: '--off', warn: '--warn', bad: '--bad' };

/** Squares draws one square for each instance of a zone. The table of instances has the same content as text. */
function Squares({ list }) {
  const ref = useRef(null);
  const size = 14;
  const columns = 40;
  useEffect(() => {
    const c = ref.current;
    const ratio = devicePixelRatio || 1;
    const rows = Math.ceil(list.length / columns);
    c.width = columns * size * ratio;
    c.height = rows * size * ratio;
    c.style.aspectRatio = `${columns} / ${rows}`;
    const g = c.getContext('2d');
    const style = getComputedStyle(document.documentElement);
    const color = Object.fromEntries([...new Set(Object.values(colors))].map((c) => [c, style.getPropertyValue(c)]));
    g.scale(ratio, ratio);
    list.forEach((p, n) => {
      const tone = p.instance ? toneOf(stateOf(p.instance)) : 'bad';
      const [x, y] = [(n % columns) * size + 1, Math.floor(n / columns) * size + 1];
      g.fillStyle = g.strokeStyle = color[p.found.length ? '--warn' : colors[tone]];
      g.lineWidth = 2;
      if (tone === 'off') g.fillRect(x + 3, y + 3, size - 8, size - 8);
      else if (tone === 'ok' || tone === 'good') g.fillRect(x, y, size - 2, size - 2);
      else if (tone === 'warn') g.strokeRect(x + 1, y + 1, size - 4, size - 4);
      else g.stroke(new Path2D(`M${x + 1} ${y + 1}l${size - 4} ${size - 4}m0 ${4 - size}l${4 - size} ${size - 4}`));
    });
  }); // after each render: the project filter and the differences also change the squares
  const pick = (e) => {
    const box = ref.current.getBoundingClientRect();
    const cell = box.width / columns;
    const p = list[Math.floor((e.clientY - box.top) / cell) * columns + Math.floor((e.clientX - box.left) / cell)];
    if (p?.instance) choose('instance', p.instance.id);
  };
  const counts = {};
  for (const p of list) counts[p.instance ? stateOf(p.instance) : 'no instance'] = (counts[p.instance ? stateOf(p.instance) : 'no instance'] ?? 0) + 1;
  const text = Object.entries(counts).map(([s, n]) => `${n} ${s}`).join(', ');
  return html`<canvas ref=${ref} class="squares" role="img" aria-label=${text} onClick=${pick}></canvas><div class="small muted">${text}. <a href="#/resources/instance">All instances as a table</a></div>`;
}

export function Map_() {
  const zones = pairs();
  const cluster = Boolean(head.value?.cluster);
  const total = zones.reduce((n, [, l]) => n + l.length, 0);
  const disks = new Map();
  for (const d of all('disk')) for (const a of d.attachments ?? []) disks.set(a.instance, [...(disks.get(a.instance) ?? []), d]);
  const lbs = all('loadBalancer');
  return html`<h1 class="sr">Map</h1>
    ${lbs.slice(0, 10).map((lb) => html`<${LoadBalancer} key=${lb.id} lb=${lb} />`)}
    ${lbs.length > 10 && html`<a href="#/resources/loadBalancer">${lbs.length - 10} more load balancers</a>`}
    ${total === 0 && html`<${Empty} title="No instance yet">Create the first instance:<${Create} /></${Empty}>`}
    ${total > 0 && (cluster ? html`<div class="legend"><h2>CLOUD: existing instances</h2><span></span><h2>CLUSTER: Kubernetes Nodes</h2></div>` : html`<div class="legend alone"><h2>CLOUD</h2><span class="small muted">This console shows no cluster. To see Nodes, start the console with --kubeconfig.</span></div>`)}
    ${total > 0 && zones.map(([zone, list]) => html`<section class="zone" key=${zone} aria-label=${`Zone ${zone}`}><h3>${zone} <span class="muted small">${count(list.filter((p) => p.instance).length)}</span>${outageOf(zone)}</h3>
      ${total > many(cluster) ? html`<${Squares} list=${list} />` : html`<div class=${cluster ? '' : 'tiles'}>${list.map((p) => html`<${Pair} key=${p.key} pair=${p} disks=${disks} cluster=${cluster} />`)}</div>`}</section>`)}
    ${total > 0 && can('instances.create') && html`<details><summary>Create an instance</summary><${Create} /></details>`}`;
}
